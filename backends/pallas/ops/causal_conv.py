"""Depthwise convolution over the last inputs of a sequence."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def after_each(x: jax.Array, taps: jax.Array, state: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The same for consecutive tokens `x [T, c]` of one sequence, with `state [n - 1, c]` before the first.

    Returns f32 `[T, c]` and the state after each, `[T, n - 1, c]`.
    """
    kept = x.astype(state.dtype).astype(jnp.float32)
    past = [state[i : i + 1].astype(jnp.float32) for i in range(state.shape[0])]
    past += [kept[t : t + 1] for t in range(len(kept))]
    out, states = [], []
    for t in range(len(kept)):
        value = x[t : t + 1] * taps[-1:]
        for i in range(state.shape[0]):
            value = value + past[t + i] * taps[i : i + 1]
        out.append(value)
        states.append(jnp.concatenate(past[t + 1 : t + 1 + state.shape[0]]))
    return jnp.concatenate(out), jnp.stack(states).astype(state.dtype)


def causal_conv(x: jax.Array, taps: jax.Array, state: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`x [B, c]`, `taps [n, c]` (the last meets `x`), `state [B, n - 1, c]` (oldest first), bf16 or f32.

    Returns f32 `[B, c]` and the next state. `x` itself is not rounded; later tokens see it as the state keeps it.
    """
    past = state.astype(jnp.float32)
    out = x * taps[-1:]
    for i in range(past.shape[1]):
        out = out + past[:, i] * taps[i : i + 1]
    # Joined in f32: rows of bf16 share registers in pairs, so that moving them by one costs more.
    kept = [past[:, 1:]] * (past.shape[1] > 1)
    return out, jnp.concatenate([*kept, x[:, None]], axis=1).astype(state.dtype)
