"""Rows times a matrix in the matrix unit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def dot(x: jax.Array, w: jax.Array) -> jax.Array:
    """`x` `[B, inputs]` times `w` `[inputs, outputs]` in f32; nothing is rounded where the matrix is f32."""
    exact = lax.Precision.HIGHEST if w.dtype == jnp.float32 else None
    return lax.dot_general(x, w, (((1,), (0,)), ((), ())), precision=exact, preferred_element_type=jnp.float32)
