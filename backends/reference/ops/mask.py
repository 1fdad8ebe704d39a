"""What does not take part."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def mask(x: jax.Array, *, used: int) -> jax.Array:
    """`x [..., n]` with -inf from index `used` on."""
    return jnp.where(lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 1) < used, x, -jnp.inf)
