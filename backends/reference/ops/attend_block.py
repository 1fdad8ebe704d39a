"""Attention of a block of rows over a cache of earlier positions and the block itself."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..caches import TILE, Cache, Index
from .attend import by_kv_head, by_token, see_tile
from .attention import Running, by_row, nothing, over, result, see
from .matmul import few

POSITION_AXES = {"keys": 1, "values": 1}


def attend_block(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    keys: Cache,
    values: Cache,
    *,
    scale: float,
    causal: bool,
    position: jax.Array,
    lengths: jax.Array,
) -> jax.Array:
    """`q [B, T, h, w]`, the block's own `k [B, T, kv, w]` and `v [B, T, kv, n]`, caches with such entries,
    `position [B, T]`, `lengths [B]`. Returns f32 `[B, T, h, n]`.

    Every row of the block sees what the caches keep of the positions before the block's first; within the block it
    sees the rows up to its own (`causal`) or all.
    """
    b, t, h, _ = q.shape
    kv, n = v.shape[2:]
    grouped = by_kv_head(q, kv) * scale
    own_keys, own_values = (jnp.moveaxis(a.astype(jnp.float32), 1, 2) for a in (k, v))

    def row(r: Index) -> jax.Array:
        newest, queries = position[r, 0] - 1, grouped[r]
        order = jnp.arange(t)
        in_block = order < lengths[r]
        within = in_block & (order <= order[:, None]) if causal else jnp.broadcast_to(in_block, (t, t))

        def tile(i: Index, so_far: Running) -> Running:
            seen = keys.sees(keys.held(i * TILE + jnp.arange(TILE), newest), newest)
            return see_tile(so_far, queries, keys, values, r, i, seen, few=few(b * t))

        context = over(keys.tiles(newest, newest), tile, nothing(queries.shape[:2], n))
        scores, seen = jnp.einsum("kmw,knw->kmn", queries, own_keys[r]), jnp.tile(within, (h // kv, 1))
        blend = lambda weights, value: value + jnp.einsum("kmn,knv->kmv", weights, own_values[r])  # noqa: E731
        return result(see(context, scores, seen, blend))

    return by_token(by_row(b, row), t)
