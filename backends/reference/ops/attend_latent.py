"""Multi-head attention over a cache of latents, in its absorbed form."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..caches import TILE, Cache, Index
from .attention import Running, by_row, nothing, over, result, see

POSITION_AXES = {"latent": 0, "common": 0}


def attend_latent(
    q: jax.Array,
    latent: Cache,
    common: Cache,
    kv_b: jax.Array,
    *,
    scale: float,
    position: jax.Array,
    lengths: jax.Array,
) -> jax.Array:
    """`q [B, T, h, nope + c]`, latents with entries `[r]`, common keys `[c]`, `kv_b [h * (nope + v), r]`,
    `position [B, T]`, `lengths [B]`. Returns f32 `[B, T, h, v]`.

    A head's key is its first `nope` rows of `kv_b` times the latent, then the common key; its value the other rows.
    """
    b, t, h, width = q.shape
    c, rank = common.data.shape[-1], latent.data.shape[-1]
    nope = width - c
    by_head = kv_b.astype(jnp.float32).reshape(h, -1, rank)
    q = q.astype(jnp.float32) * scale
    absorbed = jnp.einsum("bthn,hnr->bthr", q[..., :nope], by_head[:, :nope])

    def row(r: Index) -> jax.Array:
        newest = position[r, 0] + lengths[r] - 1
        in_latent, in_common = absorbed[r].reshape(t * h, rank), q[r, ..., nope:].reshape(t * h, c)

        def tile(i: Index, so_far: Running) -> Running:
            entries = latent.tile(r, i * TILE)
            scores = in_latent @ entries.T + in_common @ common.tile(r, i * TILE).T
            seen = latent.sees(latent.held(i * TILE + jnp.arange(TILE), newest), position[r][:, None])
            return see(so_far, scores, jnp.repeat(seen, h, axis=0), lambda weights, value: value + weights @ entries)

        tiles = latent.tiles(position[r, 0], jnp.where(lengths[r] > 0, newest, -1))
        return result(over(tiles, tile, nothing((t * h,), rank)))

    mixed = by_row(b, row).reshape(b, t, h, rank)
    return jnp.einsum("bthr,hvr->bthv", mixed, by_head[:, nope:])
