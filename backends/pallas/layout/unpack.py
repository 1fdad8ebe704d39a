"""A core's operands as matrices, vectors and tables again, in JAX: what packing did, undone."""

from __future__ import annotations

from math import prod

import jax
import jax.numpy as jnp
from jax import lax

from ....dsl.program.ir import View
from ....dsl.program.layout.tiling import Tiling
from ....dsl.targets.lanes import LANES


def matrix(rows: jax.Array, tiling: Tiling, dtype: jnp.dtype) -> jax.Array:
    """int32 `[…, tiling.rows, 512]` of a tape as the padded matrix `[…, tiling.outputs, tiling.inputs]`."""
    lead, found, at = rows.shape[:-2], [], 0
    for run in tiling.runs:
        count, blocks = run.count * sum(run.rows), run.count * run.blocks
        words = lax.slice_in_dim(rows, at, at + count, axis=rows.ndim - 2)
        values = _numbers(words, dtype).reshape(*lead, blocks, -1, run.fold, run.columns)
        n = len(lead)
        values = values.transpose(*range(n), n, n + 3, n + 2, n + 1)
        found.append(values.reshape(*lead, blocks * run.columns, tiling.inputs))
        at += count
    return jnp.concatenate(found, axis=-2)


def _numbers(words: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """`[…, rows, 512]` of words as rows of numbers; of 16 bits, the low halves are a row, the high ones the next."""
    if dtype.itemsize == 4:
        return lax.bitcast_convert_type(words, dtype)
    low, high = _halves(words, dtype)
    return jnp.stack([low, high], axis=-2).reshape(*words.shape[:-2], -1, words.shape[-1])


def _halves(words: jax.Array, dtype: jnp.dtype) -> tuple[jax.Array, jax.Array]:
    bits = lax.bitcast_convert_type(words, jnp.uint32)
    low, high = bits.astype(jnp.uint16), (bits >> 16).astype(jnp.uint16)
    return lax.bitcast_convert_type(low, dtype), lax.bitcast_convert_type(high, dtype)


def vector(row: jax.Array, view: View) -> jax.Array:
    """A weight of shape `view.shape` out of a row of vectors f32 `[…, width]`."""
    lead = row.shape[:-1]
    lines, width = view.shape[::-1] if view.transposed else (1, prod(view.shape))
    room = -(-width // LANES) * LANES
    values = lax.slice_in_dim(row, view.start, view.start + lines * room, axis=row.ndim - 1)
    values = values.reshape(*lead, lines, room)[..., :width]
    return values.swapaxes(-1, -2) if view.transposed else values.reshape(*lead, *view.shape)


def table(words: jax.Array, width: int, dtype: jnp.dtype) -> jax.Array:
    """int32 `[…, entries, 1, words]` as `[…, entries, width]`; of 16 bits the low halves come first."""
    flat = words.squeeze(-2)
    if dtype.itemsize == 4:
        return lax.bitcast_convert_type(flat, dtype)[..., :width]
    return jnp.concatenate(_halves(flat, dtype), axis=-1)[..., :width]
