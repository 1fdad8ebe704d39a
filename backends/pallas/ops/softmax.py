"""Softmax along the last axis."""

from __future__ import annotations

import jax


def softmax(x: jax.Array) -> jax.Array:
    """`x [..., n]`, shape kept."""
    return jax.nn.softmax(x, axis=-1)
