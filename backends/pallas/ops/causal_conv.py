"""Depthwise convolution over the last inputs of a sequence."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def causal_conv(x: jax.Array, taps: jax.Array, state: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`x [B, c]`, `taps [n, c]` (the last meets `x`), `state [B, n - 1, c]` (oldest first), bf16 or f32.

    Returns f32 `[B, c]` and the next state. `x` itself is not rounded; later tokens see it as the state keeps it.
    """
    past = state.astype(jnp.float32)
    out = x * taps[-1:]
    for i in range(past.shape[1]):
        out = out + past[:, i] * taps[i : i + 1]
    # Joined in f32: rows of bf16 share registers in pairs, so that moving them by one costs more.
    return out, jnp.concatenate([past[:, 1:], x[:, None]], axis=1).astype(state.dtype)
