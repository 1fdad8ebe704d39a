"""The gated delta rule: a matrix of associations, corrected by each token."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def delta_rule(
    q: jax.Array, k: jax.Array, v: jax.Array, decay: jax.Array, rate: jax.Array, S: jax.Array, *, lengths: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """`q, k [B, T, kh, key]`, `v [B, T, h, val]`, `decay [B, T, h]` or `[B, T, h, key]`, `rate [B, T, h]`,
    `S [B, h, key, val]`, `lengths [B]`; consecutive v heads share a k head.

    For each token S = exp(decay) S, S += k (rate (v - S^T k))^T, and the value is S^T q. Returns `[B, T, h, val]` and
    S after the first `lengths` tokens.
    """
    h = v.shape[2]
    q, k = (jnp.repeat(a.astype(jnp.float32), h // a.shape[2], axis=2) for a in (q, k))
    decay = jnp.exp(decay.reshape(*decay.shape[:3], -1))

    def token(S: jax.Array, at: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        t, q, k, v, decay, rate = at
        new = S * decay[..., None]
        change = rate[..., None] * (v - jnp.sum(new * k[..., None], axis=-2))
        new = new + k[..., None] * change[..., None, :]
        value = jnp.sum(new * q[..., None], axis=-2)
        return jnp.where((t < lengths)[:, None, None, None], new, S), value

    times = jnp.arange(v.shape[1])
    by_token = [jnp.moveaxis(a, 1, 0) for a in (q, k, v.astype(jnp.float32), decay, rate)]
    after, out = lax.scan(token, S.astype(jnp.float32), (times, *by_token))
    return jnp.moveaxis(out, 0, 1), after.astype(S.dtype)
