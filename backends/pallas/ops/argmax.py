"""The index of the largest element."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

# Elements compared in one go: enough registers to keep all units busy, few enough to stay in them.
_PIECE = 1024
_UNROLLED = 4

type _Best = tuple[jax.Array, jax.Array]  # the largest so far in each place of a piece, and the piece that it is from


def argmax(x: jax.Array | jax.Ref, *, used: int | None = None) -> jax.Array:
    """f32 `x [B, n]`, or a reference to one in VMEM, to int32 `[B, 1]`: of the first `used` elements or of all.

    The lowest index on ties, and 0 where nothing compares (NaN). Long rows are better given by reference: a value takes
    registers, or room for them, as a whole.
    """
    n = x.shape[-1] if used is None else used
    width = min(n, _PIECE)
    looped = n // (_PIECE * _UNROLLED) if isinstance(x, jax.Ref) else 0

    def see_next(i: jax.Array, so_far: _Best) -> _Best:
        for piece in (i * _UNROLLED + j for j in range(_UNROLLED)):
            so_far = _see(so_far, x[:, pl.ds(pl.multiple_of(piece * _PIECE, _PIECE), _PIECE)], piece)
        return so_far

    first = x[:, :width]
    so_far = first, jnp.zeros(first.shape, jnp.int32)
    if looped:  # written out, the compiler would want all pieces at hand at once
        so_far = lax.fori_loop(0, looped, see_next, so_far)
    for piece in range(looped * _UNROLLED or 1, -(-n // width)):
        so_far = _see(so_far, _whole(x[:, piece * width : min(n, (piece + 1) * width)], width), piece)
    return _result(so_far, n)


def _whole(values: jax.Array, width: int) -> jax.Array:
    """The last piece of a row, made up to the width of the others."""
    rows, missing = values.shape[0], width - values.shape[-1]
    return jnp.concatenate([values, jnp.full((rows, missing), -jnp.inf)], axis=-1) if missing else values


def _see(so_far: _Best, values: jax.Array, piece: jax.Array | int) -> _Best:
    best, at = so_far
    return jnp.maximum(values, best), jnp.where(values > best, piece, at)


def _result(so_far: _Best, n: int) -> jax.Array:
    best, at = so_far
    index = at * best.shape[-1] + lax.broadcasted_iota(jnp.int32, best.shape, 1)
    found = jnp.min(jnp.where(best == jnp.max(best, axis=-1, keepdims=True), index, n), axis=-1, keepdims=True)
    return jnp.where(found < n, found, 0)
