"""Rotary position embedding."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def rope(
    x: jax.Array, position: jax.Array, *, theta: float, width: float | None = None, pairs: int = 0, scaling: float = 1
) -> jax.Array:
    """`x [B, T, ..., n]` rotated by `position [B, T]` over `scaling`, in its first `width` channels (all by default).

    Channel i turns with i + width / 2 (`pairs` 0) or with its neighbour (`pairs` 1), by theta ** (-2 i / width).
    """
    n = x.shape[-1] if width is None else int(width)
    frequency = np.asarray(theta ** (-np.arange(0, n, 2) / n) / scaling, np.float32)
    angle = position.astype(jnp.float32)[..., None] * frequency
    angle = angle.reshape(*position.shape, *(1,) * (x.ndim - position.ndim - 1), n // 2)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    if pairs:
        a, b = x[..., :n:2], x[..., 1:n:2]
        turned = jnp.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(*x.shape[:-1], n)
    else:
        a, b = x[..., : n // 2], x[..., n // 2 : n]
        turned = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    return turned if n == x.shape[-1] else jnp.concatenate([turned, x[..., n:]], axis=-1)
