"""Grouped-query attention over a cache."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from ..caches import TILE, Cache, Index
from .attention import Running, by_row, nothing, over, result, see
from .matmul import few
from .sums import sums

POSITION_AXES = {"keys": 1, "values": 1}

# So many queries share one pass over a tile's keys, and up to so many passes are written out head by head.
_TOGETHER = 8
_PASSES = 32


def attend(
    q: jax.Array, keys: Cache, values: Cache, *, scale: float, position: jax.Array, lengths: jax.Array
) -> jax.Array:
    """`q [B, T, h, w]`, keys with entries `[kv, w]` and values `[kv, v]`, `position [B, T]`, `lengths [B]`.

    Returns f32 `[B, T, h, v]`. Each token sees the positions up to its own that the caches keep; all `lengths` tokens
    of the pass are in them already.
    """
    b, t, h, _ = q.shape
    kv, v = values.data.shape[2], values.data.shape[-1]
    grouped = by_kv_head(q, kv) * scale

    def row(r: Index) -> jax.Array:
        newest = position[r, 0] + lengths[r] - 1
        queries = lax.optimization_barrier(lax.dynamic_index_in_dim(grouped, r, keepdims=False))

        def tile(i: Index, so_far: Running) -> Running:
            seen = keys.sees(keys.held(i * TILE + jnp.arange(TILE), newest), position[r][:, None])
            return see_tile(so_far, queries, keys, values, r, i, jnp.tile(seen, (h // kv, 1)), few=few(b * t))

        tiles = keys.tiles(position[r, 0], jnp.where(lengths[r] > 0, newest, -1))
        return result(over(tiles, tile, nothing(queries.shape[:2], v)))

    return by_token(by_row(b, row), t)


def by_kv_head(q: jax.Array, kv: int) -> jax.Array:
    """`q [B, T, h, w]` in f32 as `[B, kv, h / kv * T, w]`."""
    b, t, h, w = q.shape
    return q.astype(jnp.float32).reshape(b, t, kv, h // kv, w).transpose(0, 2, 3, 1, 4).reshape(b, kv, -1, w)


def by_token(values: jax.Array, t: int) -> jax.Array:
    """`[B, kv, h / kv * T, v]` as `[B, T, h, v]`."""
    b, kv, _, v = values.shape
    return values.reshape(b, kv, -1, t, v).transpose(0, 3, 1, 2, 4).reshape(b, t, -1, v)


def see_tile(
    so_far: Running, queries: jax.Array, keys: Cache, values: Cache, row: Index, i: Index, seen: jax.Array, *, few: bool
) -> Running:
    """Go on by tile `i` of a row's cache: `queries [kv, m, w]`, `seen` broadcasts to `[m, TILE]`.

    A pass of `few` tokens does without matrix products, which would interrupt its loop over the layers.
    """
    k = keys.tile(row, i * TILE)
    if not few:
        v = values.tile(row, i * TILE)
        scores = jnp.einsum("kmw,knw->kmn", queries, k)
        return see(so_far, scores, seen, lambda weights, value: value + jnp.einsum("kmn,knv->kmv", weights, v))

    def blend(weights: jax.Array, value: jax.Array) -> jax.Array:
        by_position = weights.transpose(2, 0, 1)[..., None]

        def one(j: Index, value: jax.Array) -> jax.Array:
            return value + by_position[j] * values.tile(row, i * TILE + j, 1)

        return lax.fori_loop(0, TILE, one, value)

    return see(so_far, _scores(queries, k), seen, blend)


def _scores(queries: jax.Array, keys: jax.Array) -> jax.Array:
    """`queries [kv, m, w]` and `keys [kv, n, w]` to `[kv, m, n]`."""
    kv, m, _ = queries.shape
    groups = [queries[:, at : at + _TOGETHER] for at in range(0, m, _TOGETHER)]
    if kv * len(groups) > _PASSES:
        every = [sums([keys * group[:, j, None] for j in range(group.shape[1])]) for group in groups]
        return jnp.stack([score for group in every for score in group], axis=1)
    return jnp.stack(
        [
            jnp.stack([score for group in groups for score in sums([keys[head] * q for q in group[head]])])
            for head in range(kv)
        ]
    )
