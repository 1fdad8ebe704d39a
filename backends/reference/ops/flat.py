"""All of a value's axes as one."""

from __future__ import annotations

import jax


def flat(x: jax.Array, *, lead: int = 0) -> jax.Array:
    """`x` with all axes after the first `lead` merged."""
    return x.reshape(*x.shape[:lead], -1)
