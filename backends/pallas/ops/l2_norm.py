"""Normalisation to unit length."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def l2_norm(x: jax.Array, *, eps: float) -> jax.Array:
    """`x [..., n]` over the root of its sum of squares + eps."""
    return x * lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + eps)
