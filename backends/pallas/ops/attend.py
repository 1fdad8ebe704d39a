"""Grouped-query attention over a cache, by tiles, inside a TPU kernel.

One row of the batch at a time: `own` begins with the row's own token, which the cache does not hold yet; `tile` goes on
by one tile of the cache; `result` ends. The heads of all groups stay in one dense array: each key/value head gets the
products of its own heads only, other rows being zero, and the products of all are summed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add

import jax
import jax.numpy as jnp
from jax import lax

from ....dsl.targets.lanes import LANES, SUBLANES
from .dot import dot, exact

# Of the heads: the largest score in all lanes `[h, 128]`, the sum of weights spread over the lanes `[h, 128]` and the
# weighted sum of values `[h, n]`; all f32.
type Running = tuple[jax.Array, jax.Array, jax.Array]
type Scalar = jax.Array | int
type Values = Sequence[jax.Array]

# Below every score: its exponential is zero, and it is no infinity, of which a difference would be no number.
_LEAST = -1e30


def own(qs: Values, ks: Values, v: jax.Array, scale: jax.Array | float) -> Running:
    """What the row's own token sees of itself: `q [h, w]`, `k [kv, w]`, `v [kv, n]`, as rounded by their caches.

    Queries and keys may come in pieces of their channels, each with a width of its own.
    """
    h = qs[0].shape[0]
    pairs = [(q.astype(jnp.float32), k.astype(jnp.float32)) for q, k in zip(qs, ks, strict=True)]
    score = reduce(add, (jnp.sum(q * _by_head(k, h), axis=-1, keepdims=True) for q, k in pairs)) * scale
    lane = lax.broadcasted_iota(jnp.int32, (h, LANES), 1)
    return jnp.broadcast_to(score, lane.shape), jnp.where(lane == 0, 1.0, 0.0), _by_head(v.astype(jnp.float32), h)


def tile(
    so_far: Running,
    qs: Values,
    k_tiles: Values,
    v_tile: jax.Array,
    start: Scalar,
    position: Scalar,
    scale: jax.Array | float,
    last: int | None = None,
    end: Scalar | None = None,
) -> Running:
    """Go on by the tile that begins at `start`: `q [h, w]`, `k_tile [kv, T, w]`, `v_tile [kv, T, n]`.

    The tiles may be values or references. Only positions below `position`, and above `position - last`, are seen; what
    others hold, NaN even, has no effect. Where heads see different positions, `position` is int32 `[h, 1]`, and `end`
    the first that none sees. With bf16 caches a `q` that is rounded to bf16 is best given as bf16.
    """
    largest, total, value = so_far
    (kv, length, n), h = v_tile.shape, qs[0].shape[0]
    of_head = [_heads_of(i, h // kv, kv) for i in range(kv)]
    pairs = [(q, k, i) for i in range(kv) for q, k in zip(qs, k_tiles, strict=True)]
    scores = reduce(add, (_scores(of_head[i](q), k[i]) for q, k, i in pairs))[:h] * scale
    seen = _seen(lax.broadcasted_iota(jnp.int32, scores.shape, 1), start, position, last)
    scores = jnp.where(seen, scores, -jnp.inf)
    new = jnp.maximum(largest, jnp.max(scores, axis=-1, keepdims=True))
    weights, fade = jnp.exp(scores - _lanes(new, length)), jnp.exp(largest - new)
    # A weight of zero is not enough for a value that may be NaN.
    visible = _seen(lax.broadcasted_iota(jnp.int32, (length, n), 0), start, position if end is None else end, last)
    blends = (_blend(of_head[i](weights), jnp.where(visible, v_tile[i], 0)) for i in range(kv))
    return new, total * fade + _folded(weights), value * _lanes(fade, n) + reduce(add, blends)[:h]


def result(so_far: Running) -> jax.Array:
    """The mean of the values, `[h, n]`."""
    _, total, value = so_far
    return value / jnp.sum(total, axis=-1, keepdims=True)


def none_of(so_far: Running) -> Running:
    """What is seen of no position."""
    largest, total, value = so_far
    return jnp.full_like(largest, _LEAST), jnp.zeros_like(total), jnp.zeros_like(value)


def apart(so_far: Running) -> jax.Array:
    """All that is seen of some positions, `[h, n + 128]`: values, then in half of the lanes each the two numbers."""
    largest, total, value = so_far
    lane = lax.broadcasted_iota(jnp.int32, largest.shape, 1)
    numbers = jnp.where(lane < LANES // 2, largest, jnp.sum(total, axis=-1, keepdims=True))
    return jnp.concatenate([value, numbers], axis=-1)


def together(held: jax.Array) -> Running:
    """To go on with what `apart` gave."""
    n = held.shape[-1] - LANES
    largest, total = _numbers(held)
    lane = lax.broadcasted_iota(jnp.int32, (held.shape[0], LANES), 1)
    return jnp.broadcast_to(largest, lane.shape), jnp.where(lane == 0, total, 0.0), held[:, :n]


def merged(parts: Sequence[jax.Array]) -> jax.Array:
    """The mean of the values over the positions of all parts, `[h, n]`, each of them as `apart` gives it.

    One of them at least has seen a position.
    """
    n = parts[0].shape[-1] - LANES
    largest = reduce(jnp.maximum, (_numbers(part)[0] for part in parts))
    fades = [jnp.exp(_numbers(part)[0] - largest) for part in parts]
    total = reduce(add, (_numbers(part)[1] * fade for part, fade in zip(parts, fades, strict=True)))
    return reduce(add, (part[:, :n] * fade for part, fade in zip(parts, fades, strict=True))) / total


def _numbers(held: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The largest score and the sum of weights, `[h, 1]` each."""
    n = held.shape[-1] - LANES
    return held[:, n : n + 1], held[:, n + LANES // 2 : n + LANES // 2 + 1]


def _by_head(a: jax.Array, h: int) -> jax.Array:
    """`[kv, n]` as `[h, n]`, each for its group of heads."""
    kv, n = a.shape
    head = lax.broadcasted_iota(jnp.int32, (h, n), 0)
    out = jnp.broadcast_to(a[kv - 1 :], (h, n))
    for i in reversed(range(kv - 1)):
        out = jnp.where(head < (i + 1) * (h // kv), a[i : i + 1], out)
    return out


def _heads_of(i: int, group: int, kv: int) -> Callable[[jax.Array], jax.Array]:
    """Takes `[h, n]` to whole registers of rows, zero outside of the heads of key/value head `i`."""

    def heads(a: jax.Array) -> jax.Array:
        h, n = a.shape
        if kv > 1:
            head = lax.broadcasted_iota(jnp.int32, a.shape, 0)
            a = jnp.where((head >= i * group) & (head < (i + 1) * group), a, 0)
        more = -h % SUBLANES
        return jnp.concatenate([a, jnp.zeros((more, n), a.dtype)]) if more else a

    return heads


def _seen(places: jax.Array, start: Scalar, position: Scalar, last: int | None) -> jax.Array:
    """Whether places in the tile are seen."""
    seen = places < position - start
    return seen if last is None else seen & (places > position - start - last)


def _scores(q: jax.Array, k: jax.Array) -> jax.Array:
    """`[rows, w]` and `[T, w]` to `[rows, T]`."""
    return _dot(q, k, 1, parts=3)


def _blend(weights: jax.Array, v: jax.Array) -> jax.Array:
    """`[rows, T]` and `[T, n]` to `[rows, n]`."""
    return _dot(weights, v, 0, parts=2)


def _dot(a: jax.Array, b: jax.Array, axis: int, parts: int) -> jax.Array:
    """Contract the last axis of `a` with an axis of `b`, to f32.

    With a bf16 `b` an f32 `a` is taken as a sum of so many bf16 numbers, which share one pass through the unit.
    """
    over = (((1,), (axis,)), ((), ()))
    if b.dtype != jnp.bfloat16:
        return _exact(a.astype(jnp.float32), b.astype(jnp.float32), axis)
    if a.dtype == jnp.bfloat16:
        return lax.dot_general(a, b, over, preferred_element_type=jnp.float32)
    pieces = []
    for _ in range(parts):
        pieces.append(_rounded(a))
        a = a - pieces[-1]
    rows = a.shape[0]
    every = lax.dot_general(jnp.concatenate(pieces).astype(jnp.bfloat16), b, over, preferred_element_type=jnp.float32)
    return reduce(add, (every[i * rows : (i + 1) * rows] for i in reversed(range(parts))))


def _exact(a: jax.Array, b: jax.Array, axis: int) -> jax.Array:
    """With an f32 `b`: few of its rows at a time, as in `dot`; scores come by whole registers of lanes."""
    if axis == 0:
        return dot(a, b)
    places = [slice(at, at + LANES) for at in range(0, b.shape[0], LANES)]
    return jnp.concatenate([exact(a, b[part], 1) for part in places], axis=1)


def _rounded(a: jax.Array) -> jax.Array:
    """f32 rounded to what bf16 can hold, by its bits: compilers may drop a pair of conversions."""
    bits = lax.bitcast_convert_type(a, jnp.int32)
    return lax.bitcast_convert_type((bits + 0x8000) & -0x10000, jnp.float32)


def _lanes(a: jax.Array, n: int) -> jax.Array:
    """`[h, LANES]`, equal in all lanes, as `[h, n]`."""
    return jnp.concatenate([a] * -(-n // LANES), axis=1)[:, :n]


def _folded(weights: jax.Array) -> jax.Array:
    """`[h, T]` summed to `[h, LANES]`."""
    h, length = weights.shape
    if more := -length % LANES:
        weights = jnp.concatenate([weights, jnp.zeros((h, more), weights.dtype)], axis=1)
    return reduce(add, (weights[:, at : at + LANES] for at in range(0, length, LANES)))
