"""Ops that treat each element alone. Operands broadcast; all are f32."""

from __future__ import annotations

import jax
import jax.numpy as jnp

add, sub, mul, div, pow = jnp.add, jnp.subtract, jnp.multiply, jnp.divide, jnp.power
max, min = jnp.maximum, jnp.minimum
neg, exp, tanh, sqrt = jnp.negative, jnp.exp, jnp.tanh, jnp.sqrt
sigmoid, silu, softplus = jax.nn.sigmoid, jax.nn.silu, jax.nn.softplus


def f32(x: jax.Array) -> jax.Array:
    """`x`; the type of the name that receives it is what matters."""
    return x
