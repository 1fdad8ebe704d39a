"""Grouped-query attention over a cache."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..caches import TILE, Cache, Index
from .attention import Running, by_row, nothing, over, result, see
from .sums import sums

# Where the positions stand in an entry's axes: both tiles are then read along their last axis.
POSITION_AXES = {"keys": 1, "values": 2}

# Up to here a few passes over a tile are faster than a matrix product.
_FEW = 8


def attend(q: jax.Array, keys: Cache, values: Cache, *, scale: float, position: jax.Array,
           lengths: jax.Array) -> jax.Array:  # fmt: skip
    """`q [B, T, h, w]`, keys with entries `[kv, w]` and values `[kv, v]`, `position [B, T]`, `lengths [B]`.

    Returns f32 `[B, T, h, v]`. Each token sees the positions up to its own that the caches keep; all `lengths` tokens
    of the pass are in them already.
    """
    b, t, h, w = q.shape
    kv, v = values.data.shape[2:4]
    grouped = (q.astype(jnp.float32) * scale).reshape(b, t, kv, h // kv, w).transpose(0, 2, 3, 1, 4)

    def row(r: Index) -> jax.Array:
        newest = position[r, 0] + lengths[r] - 1
        queries = grouped[r].reshape(kv, -1, w)

        def tile(i: Index, so_far: Running) -> Running:
            seen = keys.sees(keys.held(i * TILE + jnp.arange(TILE), newest), position[r][:, None])
            seen = jnp.tile(seen, (h // kv, 1))
            return see(so_far, dots(queries, keys.tile(r, i * TILE)), seen,
                       lambda weights: dots(weights, values.tile(r, i * TILE)))  # fmt: skip

        tiles = keys.tiles(position[r, 0], jnp.where(lengths[r] > 0, newest, -1))
        return result(over(tiles, tile, nothing(queries.shape[:2], v)))

    out = by_row(b, row).reshape(b, kv, h // kv, t, v)
    return out.transpose(0, 3, 1, 2, 4).reshape(b, t, h, v)


def dots(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a [kv, m, k]` and `b [kv, n, k]` to `[kv, m, n]`."""
    if a.shape[1] <= _FEW:
        return jnp.stack(sums([b * a[:, i, None, :] for i in range(a.shape[1])]), axis=1)
    return jnp.einsum("kmw,knw->kmn", a, b)
