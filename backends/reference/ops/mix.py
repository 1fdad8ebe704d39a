"""A softmax mixture of earlier streams and the running one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def mix(banks: jax.Array, x: jax.Array, folded: jax.Array, *, eps: float, used: jax.Array | None = None) -> jax.Array:
    """`banks [..., n, d]`, `x [..., d]`, `folded [d]`, to `[..., d]`; `used [n]` says which banks take part (all).

    A vector's score is its product with `folded` over its root mean square.
    """
    every = jnp.concatenate([banks, x[..., None, :]], axis=-2)
    score = jnp.sum(every * folded, axis=-1) * lax.rsqrt(jnp.mean(every * every, axis=-1) + eps)
    if used is not None:
        score = jnp.where(jnp.append(used, True), score, -jnp.inf)
    return jnp.sum(jax.nn.softmax(score, axis=-1)[..., None] * every, axis=-2)
