"""Rearrangements between ops that the model does not name, and norms of values that are left scattered."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def view_first(x: jax.Array, *, width: int) -> jax.Array:
    """The first channels of `[B, h, n]`, heads first: `[h, B, width]`."""
    return view_by_head(x, width=width)


def view_last(x: jax.Array, *, width: int) -> jax.Array:
    """The last channels of `[B, h, n]`."""
    return x[..., x.shape[-1] - width :]


def view_by_head(x: jax.Array, *, width: int) -> jax.Array:
    """`[B, h, n]` to `[h, B, width]`."""
    return jnp.stack([x[:, i, :width] for i in range(x.shape[1])])


def view_by_row(x: jax.Array, *, width: int) -> jax.Array:
    """`[h, B, n]` to `[B, h, width]`."""
    return jnp.stack([x[i, :, :width] for i in range(x.shape[0])], axis=1)


def view_one_head(x: jax.Array) -> jax.Array:
    """`[B, n]` to `[B, 1, n]`."""
    return x[:, None]


def sum_squares(x: jax.Array) -> jax.Array:
    """`[B, n]` to `[B, 1]`."""
    return jnp.sum(x * x, axis=-1, keepdims=True)


def rms_norm_of_share(x: jax.Array, total: jax.Array, gain: jax.Array | float, *, eps: float, count: int) -> jax.Array:
    """This core's columns `x [B, n]` of a value of `count` columns, whose squares sum to `total [B, 1]`, normalised."""
    return x * lax.rsqrt(total / count + eps) * gain
