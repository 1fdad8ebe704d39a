"""A softmax mixture of earlier streams and the running one."""

from __future__ import annotations

from functools import reduce
from operator import add

import jax
import jax.numpy as jnp
from jax import lax

from ....dsl.targets.lanes import LANES

_PIECE = 512
_CHAINS = 4

# A stream, f32: `[B, 512]` each and a rest. One row alone is `[d / 128, 128]`: it would leave registers empty.
type _Pieces = list[jax.Array]


def mix(
    banks: jax.Ref,
    x: jax.Array,
    folded: jax.Array,
    *,
    eps: jax.Array | float,
    used: jax.Array | int,
    scope: str = "bank",
) -> jax.Array:
    """`banks [n, B, d]` in VMEM, bf16 or f32, `x [B, d]` and `folded [1, d]`, to `[B, d]`.

    A vector's score is its product with `folded` over its root mean square. Of the banks the first `used` take part;
    others are not read. `scope` is a named scope of what is done for each of them.
    """
    n, b, d = banks.shape
    own, factors = _pieces(x), _pieces(jnp.broadcast_to(folded, x.shape))
    axis = 1 if b == 1 else 0  # of banks: those of one row share registers
    place = lax.broadcasted_iota(jnp.int32, (1, n, LANES) if axis else (n, b, LANES), axis)
    none = jnp.zeros(place.shape, jnp.float32)

    def see(i: jax.Array, so_far: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        product, square = (jnp.expand_dims(each, axis) for each in _sums(_bank(banks, i), factors, b))
        return jnp.where(place == i, product, so_far[0]), jnp.where(place == i, square, so_far[1])

    product, square = lax.fori_loop(0, used, jax.named_scope(f"{scope}, score")(see), (none, none))
    # Sums across lanes take long, but those of all banks together no longer than one.
    scores = jnp.where(place < used, _scores(product, square, d, eps), -jnp.inf)
    own_score = _scores(*_sums(own, factors, b), d, eps)
    largest = jnp.maximum(jnp.max(scores, axis), own_score)
    weights, own_weight = jnp.exp(scores - jnp.expand_dims(largest, axis)), jnp.exp(own_score - largest)
    total = jnp.sum(weights, axis) + own_weight
    weights, own_weight = weights / jnp.expand_dims(total, axis), own_weight / total

    def blend(i: jax.Array, so_far: _Pieces) -> _Pieces:
        weight = jnp.sum(jnp.where(place == i, weights, 0.0), axis)
        return [old + piece * _wide(weight, piece) for old, piece in zip(so_far, _bank(banks, i), strict=True)]

    blended = jax.named_scope(f"{scope}, sum")(blend)
    return _whole(lax.fori_loop(0, used, blended, [piece * _wide(own_weight, piece) for piece in own]), b, d)


def _by_rows(b: int, d: int) -> bool:
    return b == 1 and d % LANES == 0


def _pieces(x: jax.Array) -> _Pieces:
    """`[B, d]` in pieces."""
    if _by_rows(*x.shape):
        return [x.reshape(-1, LANES)]
    return [x[:, at : at + _PIECE] for at in range(0, x.shape[1], _PIECE)]


def _bank(banks: jax.Ref, i: jax.Array) -> _Pieces:
    """A bank in pieces."""
    _, b, d = banks.shape
    if _by_rows(b, d):
        return _pieces(banks[i].astype(jnp.float32))
    return [banks[i, :, at : min(d, at + _PIECE)].astype(jnp.float32) for at in range(0, d, _PIECE)]


def _whole(pieces: _Pieces, b: int, d: int) -> jax.Array:
    """Pieces as `[B, d]`."""
    return pieces[0].reshape(b, d) if _by_rows(b, d) else jnp.concatenate(pieces, axis=1)


def _sums(stream: _Pieces, factors: _Pieces, b: int) -> tuple[jax.Array, jax.Array]:
    """Of a stream's products with the factors and of its squares: sums spread over lanes, `[B, 128]`."""
    products = [piece * factor for piece, factor in zip(stream, factors, strict=True)]
    return _spread(products, b), _spread([piece * piece for piece in stream], b)


def _spread(pieces: _Pieces, b: int) -> jax.Array:
    if pieces[0].shape[0] != b:
        return jnp.sum(pieces[0], axis=0, keepdims=True)
    if more := -pieces[-1].shape[1] % LANES:
        pieces = [*pieces[:-1], jnp.concatenate([pieces[-1], jnp.zeros((b, more), jnp.float32)], axis=1)]
    registers = [piece[:, at : at + LANES] for piece in pieces for at in range(0, piece.shape[1], LANES)]
    return reduce(add, (reduce(add, chain) for i in range(_CHAINS) if (chain := registers[i::_CHAINS])))


def _scores(product: jax.Array, square: jax.Array, d: int, eps: jax.Array | float) -> jax.Array:
    """From sums spread over lanes to scores, equal in all lanes."""
    product, square = (jnp.sum(each, axis=-1, keepdims=True) for each in (product, square))
    return jnp.broadcast_to(product * lax.rsqrt(square / d + eps), (*product.shape[:-1], LANES))


def _wide(weight: jax.Array, piece: jax.Array) -> jax.Array:
    """`[B, 128]`, equal in all lanes, as wide as a piece."""
    n = piece.shape[1]
    return jnp.concatenate([weight] * -(-n // LANES), axis=1)[:, :n]
