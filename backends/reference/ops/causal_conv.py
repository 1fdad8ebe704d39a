"""Depthwise convolution over the last inputs of a sequence."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from ..rounding import rounded


def causal_conv(x: jax.Array, taps: jax.Array, state: jax.Array, *, lengths: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`x [B, T, c]`, `taps [c, n]` (the last meets the newest), `state [B, n - 1, c]` (oldest first), `lengths [B]`.

    Returns `[B, T, c]` and the state after the first `lengths` tokens. Earlier tokens of the pass are seen as the
    state would have kept them.
    """
    t, length = x.shape[1], state.shape[1]
    dtype = "bf16" if state.dtype == jnp.bfloat16 else "f32"
    past = jnp.concatenate([state, rounded(x, dtype)], axis=1)
    out = x * taps[:, -1]
    for i in range(length):
        out = out + past[:, i : i + t].astype(jnp.float32) * taps[:, i]
    cut = jax.vmap(lambda row, start: lax.dynamic_slice_in_dim(row, start, length, axis=0))
    return out, cut(past, lengths)
