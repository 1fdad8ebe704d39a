"""Rows of a table."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def index(table: jax.Array, i: jax.Array) -> jax.Array:
    """`table [n, ...]` and integers `i [...]` to `[*i, ...]`; an index beyond the ends takes the nearest row."""
    return jnp.take(table, i, axis=0, mode="clip")
