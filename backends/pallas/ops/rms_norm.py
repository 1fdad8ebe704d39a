"""Root-mean-square normalisation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def rms_norm(x: jax.Array, gain: jax.Array | float, *, eps: float) -> jax.Array:
    """`x [B, ..., n]` over the root of its mean square + eps, times `gain [1, n]` or a number."""
    return x * lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps) * gain
