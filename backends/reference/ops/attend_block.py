"""Attention of a block of rows over a cache of earlier positions and the block itself."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..caches import TILE, Cache, Index
from .attend import dots
from .attention import Running, by_row, nothing, over, result, see

POSITION_AXES = {"keys": 1, "values": 2}


def attend_block(q: jax.Array, k: jax.Array, v: jax.Array, keys: Cache, values: Cache, *, scale: float, causal: bool,
                 position: jax.Array, lengths: jax.Array) -> jax.Array:  # fmt: skip
    """`q [B, T, h, w]`, the block's own `k [B, T, kv, w]` and `v [B, T, kv, n]`, caches with such entries,
    `position [B, T]`, `lengths [B]`. Returns f32 `[B, T, h, n]`.

    Every row of the block sees what the caches keep of the positions before the block's first; within the block it
    sees the rows up to its own (`causal`) or all.
    """
    b, t, h, w = q.shape
    kv, n = v.shape[2:]
    grouped = (q.astype(jnp.float32) * scale).reshape(b, t, kv, h // kv, w).transpose(0, 2, 3, 1, 4)
    own_keys, own_values = (jnp.moveaxis(a.astype(jnp.float32), 1, 2) for a in (k, v))

    def row(r: Index) -> jax.Array:
        newest = position[r, 0] - 1
        queries = grouped[r].reshape(kv, -1, w)
        order = jnp.arange(t)
        in_block = order < lengths[r]
        within = in_block & (order <= order[:, None]) if causal else jnp.broadcast_to(in_block, (t, t))

        def tile(i: Index, so_far: Running) -> Running:
            seen = keys.sees(keys.held(i * TILE + jnp.arange(TILE), newest), newest)
            return see(so_far, dots(queries, keys.tile(r, i * TILE)), seen,
                       lambda weights: dots(weights, values.tile(r, i * TILE)))  # fmt: skip

        context = over(keys.tiles(newest, newest), tile, nothing(queries.shape[:2], n))
        seen = jnp.tile(within, (h // kv, 1))
        return result(see(context, dots(queries, own_keys[r]), seen,
                          lambda weights: dots(weights, own_values[r].swapaxes(-1, -2))))  # fmt: skip

    out = by_row(b, row).reshape(b, kv, h // kv, t, n)
    return out.transpose(0, 3, 1, 2, 4).reshape(b, t, h, n)
