"""The gated delta rule on states in VMEM, inside a TPU kernel.

All of it is vector work in f32: a head's state is read once, decayed, corrected and asked. The rows of the batch are a
loop, the heads are written out.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl


def delta_rule(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    decay: jax.Array,
    rate: jax.Array,
    S_ref: jax.Ref,
    vectors: jax.Ref,
    out: jax.Ref,
    gates: jax.Ref,
    *,
    consecutive: bool = False,
) -> jax.Array:
    """`q, k [B, kh, key]`, `v [B, h, val]`, `decay [B, h]` or `[B, h, key]`, `rate [B, h]`, `S_ref [B, h, key, val]`.

    All f32; consecutive v heads share a k head. S = exp(decay) S, S += k (rate (v - S^T k))^T, in place; returns
    S^T q, `[B, h, val]`. The last three are buffers as `program.work` says. `consecutive` rows are tokens of one
    sequence: `S_ref` has one S more, which is what it was before the first, and then after each.
    """
    (b, kh, _), h = q.shape, v.shape[1]
    by_key = decay.ndim == 3
    # In buffers a row can be taken by a number that is not known yet.
    vectors[:, :kh], vectors[:, kh : 2 * kh] = q, k
    out[...] = v
    gates[:, h:] = rate
    if by_key:
        vectors[:, 2 * kh : 2 * kh + h] = jnp.exp(decay)
    else:
        gates[:, :h] = jnp.exp(decay)

    def row(r: jax.Array | int) -> None:
        columns = vectors[r].T
        gate = gates[pl.ds(r, 1)]
        for j in range(h):
            i = j * kh // h
            asked, key = columns[:, i : i + 1], columns[:, kh + i : kh + i + 1]
            fade = columns[:, 2 * kh + j : 2 * kh + j + 1] if by_key else gate[:, j : j + 1]
            S = S_ref[r, j] * fade  # of the row before, where S_ref begins with one more
            change = gate[:, h + j : h + j + 1] * (out[r, j : j + 1] - jnp.sum(S * key, axis=0, keepdims=True))
            S += key * change
            S_ref[r + consecutive, j] = S
            out[r, j : j + 1] = jnp.sum(S * asked, axis=0, keepdims=True)

    if b == 1:
        row(0)
    else:
        lax.fori_loop(0, b, lambda r, _: row(r), None)
    return out[...]
