"""The index of the largest element."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def argmax(x: jax.Array) -> jax.Array:
    """`x [..., n]` to int32 `[...]`; the lowest index on ties."""
    return jnp.argmax(x, axis=-1).astype(jnp.int32)
