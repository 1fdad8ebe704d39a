"""Two values joined."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def concat(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a [..., n]` and `b [..., m]` to `[..., n + m]`; the other axes broadcast."""
    lead = jnp.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    return jnp.concatenate([jnp.broadcast_to(each, (*lead, each.shape[-1])) for each in (a, b)], axis=-1)
