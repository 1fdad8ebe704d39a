"""Where numbers are rounded: inside a statement everything is f32."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

DTYPES = {"f32": jnp.float32, "bf16": jnp.bfloat16, "int32": jnp.int32}


def rounded(x: jax.Array, dtype: str) -> jax.Array:
    """`x` in `dtype`, to the nearest, ties to even.

    XLA may drop a conversion to bf16 and back as excess precision; `reduce_precision` it keeps.
    """
    if dtype == "bf16" and x.dtype == jnp.float32:
        x = lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)
    return x.astype(DTYPES[dtype])


def widened(x: jax.Array) -> jax.Array:
    """A number of any width in f32; integers as they are."""
    return x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x
