"""Rearrangements between ops that the model does not name, and norms of values that are left scattered."""

from __future__ import annotations

from functools import reduce
from operator import add

import jax
import jax.numpy as jnp
from jax import lax

from ....dsl.targets.lanes import LANES


def view_last(x: jax.Array, *, width: int) -> jax.Array:
    """The last channels of `[B, h, n]`."""
    return x[..., x.shape[-1] - width :]


def view_by_head(x: jax.Array, *, width: int) -> jax.Array:
    """The first channels of `[B, h, n]`, heads first: `[h, B, width]`."""
    return jnp.stack([x[:, i, :width] for i in range(x.shape[1])])


def view_by_row(x: jax.Array, *, width: int) -> jax.Array:
    """`[h, B, n]` to `[B, h, width]`."""
    return jnp.stack([x[i, :, :width] for i in range(x.shape[0])], axis=1)


def view_in_lanes(x: jax.Array, *, width: int) -> jax.Array:
    """`[B, h, n]` to `[B, h * width]`: head after head, zero from `n` on."""
    more = ((0, 0), (0, width - x.shape[-1]))
    return jnp.concatenate([jnp.pad(x[:, i], more) for i in range(x.shape[1])], axis=-1)


def view_one_head(x: jax.Array) -> jax.Array:
    """`[B, n]` to `[B, 1, n]`."""
    return x[:, None]


def view_of_one_head(x: jax.Array) -> jax.Array:
    """`[B, 1, n]` to `[B, n]`."""
    return x[:, 0]


def view_keys_values(x: jax.Array, common: jax.Array, *, heads: int, value: int) -> tuple[jax.Array, jax.Array]:
    """Of `x [B, heads * (own + value)]`: keys `[B, heads, own + c]`, which end with `common [B, c]`, and values."""
    by_head = x.reshape(x.shape[0], heads, -1)
    own = by_head[..., :-value]
    shared = jnp.broadcast_to(common[:, None], (*own.shape[:2], common.shape[-1]))
    return jnp.concatenate([own, shared], axis=-1), by_head[..., -value:]


def side_by_side(*shares: jax.Array) -> jax.Array:
    """Several `[B, n]` as one."""
    return jnp.concatenate(shares, axis=-1)


def squares_in_lanes(x: jax.Array) -> jax.Array:
    """The sum of the squares of `x [B, n]` in the first two of 128 lanes: what bf16 holds of it, and the rest."""
    total = sum_squares(x)
    high = total.astype(jnp.bfloat16).astype(jnp.float32)
    lane = lax.broadcasted_iota(jnp.int32, (x.shape[0], LANES), 1)
    return jnp.where(lane == 0, high, jnp.where(lane == 1, total - high, 0.0))


def over_root_mean(x: jax.Array, squares: jax.Array, *, eps: float, count: int) -> jax.Array:
    """`x [B, n]` over the root of a mean of `count` squares, which `squares_in_lanes` gave, + eps."""
    return x * lax.rsqrt((squares[:, :1] + squares[:, 1:2]) / count + eps)


def sum_squares(x: jax.Array) -> jax.Array:
    """`[B, n]` to `[B, 1]`."""
    return jnp.sum(x * x, axis=-1, keepdims=True)


def rms_norm_of_share(x: jax.Array, total: jax.Array, gain: jax.Array | float, *, eps: float, count: int) -> jax.Array:
    """This core's columns `x [B, n]` over the root of a mean of `count` squares, which sum to `total [B, 1]`, + eps."""
    return x * lax.rsqrt(total / count + eps) * gain


def softmax_sums(x: jax.Array) -> jax.Array:
    """The largest of `x [B, n]` and the sum of what it makes of all, in the first two of 128 lanes."""
    largest = jnp.max(x, axis=-1, keepdims=True)
    total = jnp.sum(jnp.exp(x - _finite(largest)), axis=-1, keepdims=True)
    return jnp.where(lax.broadcasted_iota(jnp.int32, (x.shape[0], LANES), 1) == 0, largest, total)


def softmax_of_share(x: jax.Array, sums: jax.Array, *, repeats: int) -> jax.Array:
    """This core's columns `x [B, n]` of a softmax, given all cores' `softmax_sums`, of which so many are the same."""
    each = [(sums[:, at : at + 1], sums[:, at + 1 : at + 2]) for at in range(0, sums.shape[-1], LANES)]
    largest = _finite(reduce(jnp.maximum, (own for own, _ in each)))
    total = reduce(add, (total * jnp.exp(own - largest) for own, total in each))
    return jnp.exp(x - largest) / (total / repeats)


def _finite(largest: jax.Array) -> jax.Array:
    """Where all are -inf, zero: a difference of infinities is no number."""
    return jnp.where(largest == -jnp.inf, 0.0, largest)


OPS = (
    over_root_mean,
    rms_norm_of_share,
    side_by_side,
    softmax_of_share,
    softmax_sums,
    squares_in_lanes,
    sum_squares,
    view_by_head,
    view_by_row,
    view_in_lanes,
    view_keys_values,
    view_last,
    view_of_one_head,
    view_one_head,
)
