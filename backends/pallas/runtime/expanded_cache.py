"""Caches that are kept expanded: a sequence's keys and values, made of its latents in plain JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from ....dsl.program import ir as p
from ...reference.caches import Index
from ...reference.states import Arrays
from .packed_weights import PackedWeights, packed_weights

type _Two = tuple[jax.Array, jax.Array]


def expanded(program: p.Program, operands: Arrays, held: Arrays, row: jax.Array) -> Arrays:
    """Keys and values of all cores, as a row's latents among `held` make them; other rows' stay.

    `operands` are all cores', `[cores, …]`, as `held` is.
    """
    weights = packed_weights(program, operands)
    result: dict[str, jax.Array] = {}
    for ring in program.caches.values():
        if ring.expanded is not None:
            result |= dict(zip(map(str, ring.caches), _of_row(ring, ring.expanded, weights, held, row), strict=True))
    return result


def _of_row(ring: p.CacheRing, cache: p.Expanded, weights: PackedWeights, held: Arrays, row: jax.Array) -> _Two:
    """Layer by layer, so that little is there beside the caches."""
    keys, values = (held[name.label] for name in ring.caches)
    cores, layers, _, heads, positions, _ = keys.shape
    # [cores, layers, positions, width], whole lanes of which the latents may fill less
    latent, common = (
        lax.dynamic_slice_in_dim(held[name.label], row, 1, axis=2)[:, :, 0, 0, :positions]
        for name in (cache.latent, cache.common)
    )

    def layer(i: Index, kept: _Two) -> _Two:
        by_head = weights.shares(cache.weight, i).reshape(cores, heads, -1, rank)
        mine, shared = (lax.dynamic_index_in_dim(a, i, axis=1, keepdims=False) for a in (latent, common))
        both = jnp.einsum(
            "cpr,chnr->chpn",
            mine[..., :rank],
            by_head,
            precision=lax.Precision.HIGHEST,
            preferred_element_type=jnp.float32,
        )
        own, value = both[..., : -cache.value], both[..., -cache.value :]
        width = cache.key - own.shape[-1]
        every = jnp.broadcast_to(shared[:, None, :, :width], (*own.shape[:-1], width))
        key = jnp.concatenate([own, every.astype(own.dtype)], axis=-1)
        return _put(kept[0], key, i, row), _put(kept[1], value, i, row)

    rank = weights.program.shares.weight_shape(weights.program.instance.model.weights[cache.weight])[-1]
    return lax.fori_loop(0, layers, layer, (keys, values))


def _put(cache: jax.Array, entries: jax.Array, layer: Index, row: jax.Array) -> jax.Array:
    """`[cores, heads, positions, n]` into one layer's and row's of a cache, whose entries go on with zeros."""
    room = cache.shape[-1] - entries.shape[-1]
    padded = jnp.pad(entries, ((0, 0),) * 3 + ((0, room),)).astype(cache.dtype)
    return lax.dynamic_update_slice(cache, padded[:, None, None], (0, layer, row, 0, 0, 0))
