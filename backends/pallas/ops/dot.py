"""Rows times a matrix in the matrix unit."""

from __future__ import annotations

from functools import reduce
from operator import add

import jax
import jax.numpy as jnp
from jax import lax

# Rows of an f32 matrix at once: each number is taken as three, and those of more do not stay in registers.
_EXACT = 64


def dot(x: jax.Array, w: jax.Array) -> jax.Array:
    """`x` `[B, inputs]` times `w` `[inputs, outputs]` in f32; nothing is rounded where the matrix is f32."""
    if w.dtype != jnp.float32:
        return lax.dot_general(x, w, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32)
    parts = [slice(at, at + _EXACT) for at in range(0, w.shape[0], _EXACT)]
    return reduce(add, (exact(x[:, part], w[part], 0) for part in parts))


def exact(x: jax.Array, w: jax.Array, axis: int) -> jax.Array:
    """The last axis of `x` contracted with an axis of `w`; both are f32, and nothing is rounded."""
    over = (((1,), (axis,)), ((), ()))
    return lax.dot_general(x, w, over, precision=lax.Precision.HIGHEST, preferred_element_type=jnp.float32)
