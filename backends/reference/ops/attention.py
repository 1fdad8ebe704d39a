"""Softmax attention by tiles of a cache, up to the current position: what the attend ops share."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from ..caches import Index

# Largest score, sum of weights and weighted sum of values so far.
type Running = tuple[jax.Array, jax.Array, jax.Array]


def nothing(lead: tuple[int, ...], width: int) -> Running:
    """Before anything was seen. Finite, so that a tile with nothing to see leaves it as it was."""
    return jnp.full(lead, -1e30), jnp.zeros(lead), jnp.zeros((*lead, width))


def see(
    so_far: Running, scores: jax.Array, seen: jax.Array, blend: Callable[[jax.Array, jax.Array], jax.Array]
) -> Running:
    """Go on by a tile: `scores [*lead, n]`, `seen` broadcasts to them.

    `blend(weights, value)` adds the tile's values by their weights `[*lead, n]` to `value`.
    """
    largest, total, value = so_far
    scores = jnp.where(seen, lax.optimization_barrier(scores), -jnp.inf)
    new = jnp.maximum(largest, jnp.max(scores, axis=-1))
    weights, fade = lax.optimization_barrier(jnp.exp(scores - new[..., None])), jnp.exp(largest - new)
    return new, total * fade + jnp.sum(weights, axis=-1), blend(weights, value * fade[..., None])


def result(seen: Running) -> jax.Array:
    """The mean of the values; zero where nothing was seen."""
    _, total, value = seen
    return value / jnp.maximum(total, 1e-30)[..., None]


def over(tiles: tuple[jax.Array, jax.Array], tile: Callable[[Index, Running], Running], start: Running) -> Running:
    """Fold `tile` over a range of tiles."""
    return lax.fori_loop(*tiles, tile, start)


def by_row(rows: int, row: Callable[[Index], jax.Array]) -> jax.Array:
    """One row of the pass after the other, as each has its own number of tiles."""
    return row(0)[None] if rows == 1 else lax.map(row, jnp.arange(rows))
