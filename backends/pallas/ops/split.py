"""Pieces of the last axis."""

from __future__ import annotations

from itertools import accumulate

import jax


def split(x: jax.Array, *, width: tuple[int, ...]) -> tuple[jax.Array, ...]:
    """`x [..., sum(width)]` cut into pieces of the given widths."""
    return tuple(x[..., end - piece : end] for piece, end in zip(width, accumulate(width), strict=True))
