"""All of a value's axes as one."""

from __future__ import annotations

import jax


def flat(x: jax.Array) -> jax.Array:
    """`x [B, ...]` to `[B, n]`."""
    return x.reshape(x.shape[0], -1)
