"""Routed experts as matrices again, in JAX: what packing did, undone and decoded."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from ....dsl.program.layout.expert_layout import OCTET, Block, ExpertLayout, ExpertProduct
from ...reference.rounding import DTYPES
from . import unpack

_TWICE = (0, 1, 2, 3, 4, 6, 8, 12)  # twice what a code without its sign means


def expert_matrices(rows: jax.Array, layout: ExpertLayout, dtype: jnp.dtype) -> tuple[jax.Array, ...]:
    """int32 `[…, layout.rows, 512]` as the layout's matrices in order, `[…, width, inputs]` each, without padding."""
    found = []
    for product in layout.products:
        if product.group:
            blocks = [_decoded(rows, product, block) for block in product.blocks]
            whole = jnp.concatenate(blocks, axis=-2)
        else:
            own = lax.slice_in_dim(rows, product.row, product.row + product.tiling.rows, axis=rows.ndim - 2)
            whole = unpack.matrix(own, product.tiling, jnp.dtype(DTYPES[product.codec.name]))
        at = 0
        for width in product.widths:
            found.append(whole[..., at : at + width, : product.inputs].astype(dtype))
            at += width
    return tuple(found)


def _decoded(rows: jax.Array, product: ExpertProduct, block: Block) -> jax.Array:
    """A block's weights, f32 `[…, columns, padded inputs]`."""
    words = rows[..., block.row : block.row + block.rows, :]
    values = _e2m1(words) if product.codec.name == "mxfp4" else _e4m3(words)
    scales = jnp.concatenate([_octet(rows, product, block.octet + i) for i in range(product.octets(block.fold))], -2)
    values *= jnp.repeat(scales, product.group, axis=-2)[..., : values.shape[-2], :]
    lead, n = values.shape[:-2], values.ndim - 2
    pieces = values.reshape(*lead, values.shape[-2], block.fold, block.columns)
    return pieces.transpose(*range(n), n + 2, n + 1, n).reshape(*lead, block.columns, -1)


def _octet(rows: jax.Array, product: ExpertProduct, octet: int) -> jax.Array:
    """An octet's scales, f32 `[…, 8, 512]`; the byte of one is its exponent."""
    row, byte = product.place(octet)
    bytes_ = (rows[..., row : row + OCTET, :] >> 8 * byte) & 0xFF
    return lax.bitcast_convert_type(bytes_ << 23, jnp.float32)


def _e2m1(words: jax.Array) -> jax.Array:
    """`[…, n, 512]` words as rows of what four bits each mean, f32 `[…, 8 * n, 512]`, the lowest first."""
    codes = _parts(words, 4)
    sign = 1 - (codes >> 3 << 1)
    return (jnp.asarray(_TWICE)[codes & 7] * sign).astype(jnp.float32) * 0.5


def _e4m3(words: jax.Array) -> jax.Array:
    """The same of eight bits each, f32 `[…, 4 * n, 512]`."""
    return lax.bitcast_convert_type(_parts(words, 8).astype(jnp.uint8), jnp.float8_e4m3fn).astype(jnp.float32)


def _parts(words: jax.Array, bits: int) -> jax.Array:
    """Words cut into rows of `bits` bits, the lowest first."""
    shifts = jnp.arange(0, 32, bits, dtype=jnp.int32)[:, None]
    return ((words[..., None, :] >> shifts) & (1 << bits) - 1).reshape(*words.shape[:-2], -1, words.shape[-1])
