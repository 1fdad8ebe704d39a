"""A weighted sum over each token's experts."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from ..caches import Index
from .route import Routes

# Up to here each token reads its own experts; beyond, an expert is read once and all tokens pass it.
FEW = 8


def experts(
    one: Callable[[Index, Index], jax.Array],
    every: Callable[[Index], jax.Array],
    routes: Routes,
    count: int,
    width: int,
) -> jax.Array:
    """The sum over routes `[B, T, top]` of weight times body, f32 `[B, T, width]`, by ascending expert.

    `one(e, n)` is the body of expert `e` for token `n` of B * T, `[width]`; `every(e)` for all, `[B, T, width]`.
    """
    b, t, top = routes.ids.shape
    if b * t <= FEW:
        ids, weights = routes.ids.reshape(-1, top), routes.weights.reshape(-1, top)

        def token(n: jax.Array) -> jax.Array:
            add = lambda k, total: total + weights[n, k] * one(ids[n, k], n)  # noqa: E731
            return lax.fori_loop(0, top, add, jnp.zeros(width))

        return lax.map(token, jnp.arange(b * t)).reshape(b, t, width)

    def expert(e: Index, total: jax.Array) -> jax.Array:
        routed = routes.ids == e
        weight = jnp.sum(jnp.where(routed, routes.weights, 0), axis=-1, keepdims=True)
        mine = jnp.any(routed, axis=-1, keepdims=True)
        return lax.cond(jnp.any(routed), lambda: total + jnp.where(mine, weight * every(e), 0), lambda: total)

    return lax.fori_loop(0, count, expert, jnp.zeros((b, t, width)))
