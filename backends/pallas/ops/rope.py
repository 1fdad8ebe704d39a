"""Rotary position embedding."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from ....dsl.targets.lanes import LANES


def rope(
    x: jax.Array, position: jax.Array, *, theta: float, width: float | None = None, pairs: int = 0, scaling: float = 1
) -> jax.Array:
    """`x [B, ..., n]` rotated by int32 `position [B, 1]` over `scaling`, in its first `width` channels (else all).

    Channel i turns with i + width / 2 (`pairs` 0) or with its neighbour (`pairs` 1), by theta ** (-2 i / width).
    """
    turn = turns(position, x.shape[-1], theta=theta, width=width, pairs=pairs, scaling=scaling)
    return rotated(x, turn, width=width, pairs=pairs)


def turns(
    position: jax.Array, n: int, *, theta: float, width: float | None = None, pairs: int = 0, scaling: float = 1
) -> tuple[jax.Array, jax.Array]:
    """What every `x [B, ..., n]` at `position [B, 1]` is rotated by: the cosine of each channel and its signed sine.

    f32 `[B, m]`, where the `m` first channels of `n` are all that turn and, up to whole registers, some that do not.
    """
    turning = n if width is None else int(width)
    half, m = turning // 2, _touched(n, turning)
    frequency = np.asarray(theta ** (-np.arange(0, turning, 2) / turning) / scaling, np.float32)
    channel = lax.broadcasted_iota(jnp.int32, (1, m), 1)
    first = channel & 1 == 0 if pairs else channel < half
    index = channel >> 1 if pairs else jnp.where(first, channel, channel - half)
    by_channel = jnp.where(channel < turning, _chosen(index, [float(f) for f in frequency]), 0.0)
    angle = position.astype(jnp.float32) * by_channel
    sin = jnp.sin(angle)
    return jnp.cos(angle), jnp.where(first, -sin, sin)


def rotated(
    x: jax.Array, turn: tuple[jax.Array, jax.Array], *, width: float | None = None, pairs: int = 0
) -> jax.Array:
    """`x [B, ..., n]` rotated by what `turns` gives for the same `n`, `width` and `pairs`."""
    m = turn[0].shape[-1]
    cos, sin = (each.reshape(each.shape[0], *(1,) * (x.ndim - 2), m) for each in turn)
    a, rest = x[..., :m], x[..., m:]
    apart = 1 if pairs else (x.shape[-1] if width is None else int(width)) // 2
    out = a * cos + _partner(a, apart, pairs) * sin
    return jnp.concatenate([out, rest], axis=-1) if rest.shape[-1] else out


def _touched(n: int, turning: int) -> int:
    """How many channels are computed for `turning` ones: whole registers, as cutting one costs more."""
    return n if n % LANES else -(-turning // LANES) * LANES


def _partner(x: jax.Array, apart: int, pairs: int) -> jax.Array:
    """The other channel of each pair, which stands `apart` channels on or back."""
    back = _rolled(x, apart)
    if 2 * apart == x.shape[-1]:
        return back
    channel = lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 1)
    first = channel & 1 == 0 if pairs else channel < apart
    return jnp.where(first, _rolled(x, x.shape[-1] - apart), back)


def _rolled(x: jax.Array, by: int) -> jax.Array:
    """Each channel moved on by `by`, around the end."""
    if x.shape[-1] % LANES:
        return jnp.concatenate([x[..., -by:], x[..., :-by]], axis=-1)
    return pltpu.roll(x, by, x.ndim - 1)


def _chosen(index: jax.Array, values: Sequence[float]) -> jax.Array:
    """`values[index]`: a kernel holds no tables, so that its bits choose among constants."""
    level: list[jax.Array | float] = list(values)
    bit = 0
    while len(level) > 1:
        odd = (index >> bit) & 1 == 1
        alone = level[len(level) // 2 * 2 :]
        level = [*(jnp.where(odd, high, low) for low, high in zip(level[::2], level[1::2], strict=False)), *alone]
        bit += 1
    return jnp.broadcast_to(jnp.asarray(level[0], jnp.float32), index.shape)
