"""Pieces of the last axis."""

from __future__ import annotations

from itertools import accumulate

import jax
import jax.numpy as jnp


def split(x: jax.Array, *, width: tuple[int, ...]) -> tuple[jax.Array, ...]:
    """`x [..., sum(width)]` cut into pieces of the given widths."""
    return tuple(jnp.split(x, list(accumulate(width))[:-1], axis=-1))
