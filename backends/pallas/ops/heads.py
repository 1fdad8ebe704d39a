"""The last axis in equal pieces."""

from __future__ import annotations

import jax


def heads(x: jax.Array, *, n: int) -> jax.Array:
    """`x [..., n * w]` to `[..., n, w]`."""
    return x.reshape(*x.shape[:-1], n, x.shape[-1] // n)
