"""Rows times a matrix in the matrix unit."""

from __future__ import annotations

from functools import reduce
from operator import add

import jax
import jax.numpy as jnp
from jax import lax

# Of an f32 matrix, inputs at once: each number is taken as three, and those of more do not stay in registers.
_EXACT = 128


def dot(x: jax.Array, w: jax.Array) -> jax.Array:
    """`x` `[B, inputs]` times `w` `[inputs, outputs]` in f32; nothing is rounded where the matrix is f32."""
    if w.dtype != jnp.float32:
        return _dot(x, w, None)
    parts = [slice(at, at + _EXACT) for at in range(0, w.shape[0], _EXACT)]
    return reduce(add, (_dot(x[:, part], w[part], lax.Precision.HIGHEST) for part in parts))


def _dot(x: jax.Array, w: jax.Array, exact: lax.Precision | None) -> jax.Array:
    return lax.dot_general(x, w, (((1,), (0,)), ((), ())), precision=exact, preferred_element_type=jnp.float32)
