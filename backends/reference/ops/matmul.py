"""A matrix times vectors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .sums import sums

# Up to here reading the matrix costs more than the arithmetic, and a reduction a row reads it once, without copies.
FEW = 4


def matmul(w: jax.Array, x: jax.Array) -> jax.Array:
    """`w [out, in]` and `x [..., in]`, f32 or bf16 each, to f32 `[..., out]`; products are summed in f32."""
    rows = x.reshape(-1, x.shape[-1])
    if len(rows) == 1:
        out = lax.dot_general(rows[0], w, (((0,), (1,)), ((), ())), preferred_element_type=jnp.float32)[None]
    elif len(rows) <= FEW:
        wide = w.astype(jnp.float32)
        out = jnp.stack(sums([wide * row for row in rows.astype(jnp.float32)]))
    else:
        out = lax.dot_general(rows, w, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
    return out.reshape(*x.shape[:-1], w.shape[0])
