"""A product's operand times the tiles that have arrived."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ....dsl.program import ir as p
from ....dsl.program.layout.tiling import Run
from ....dsl.targets.lanes import LANES
from ...reference.rounding import DTYPES
from ..ops.dot import dot as multiply
from .context import Core


def dot(op: p.Dot, core: Core) -> None:
    """All blocks of one iteration; a block's dots are one sum, with no wait between, so that they stay in the unit."""
    product = core.program.products[op.product]
    run, operand, result = product.tiling.runs[op.run], core.refs[product.operand], core.refs[product.result]
    if product.piece:
        _by_head(product, run, operand, result, core)
        return
    x = _pieces(operand[...], run.fold)
    first = core.block * (run.blocks * run.columns) if run.count > 1 else 0
    for block in range(run.blocks):
        at = run.first + first + block * run.columns
        place = pl.ds(at if isinstance(at, int) else pl.multiple_of(at, run.columns), run.columns)
        result[:, place] = unfolded(_times(x, product, run, block, core), run)


def _pieces(x: jax.Array, fold: int) -> jax.Array:
    """`[B, K]` as `[fold * B, K / fold]`: the pieces that lie side by side in a tile, one below the other."""
    if fold == 1:
        return x
    width = x.shape[1] // fold
    # Joined in f32: rows of 16 bits share registers in pairs.
    wide = x.astype(jnp.float32)
    return jnp.concatenate([wide[:, i * width : (i + 1) * width] for i in range(fold)]).astype(x.dtype)


def _times(x: jax.Array, product: p.Product, run: Run, block: int, core: Core) -> jax.Array:
    """Times one block's tiles, all lanes of them: `[rows of x, 512]`."""
    found, at = [], 0
    for slot, rows in core.arrived:
        words = rows // run.blocks
        part = core.refs[product.ring][slot, block * words : (block + 1) * words]
        inputs = words * product.tiling.per_word
        found.append(multiply(x[:, at : at + inputs], pltpu.bitcast(part, DTYPES[product.dtype])))
        at += inputs
    return reduce(add, found)


def unfolded(total: jax.Array, run: Run) -> jax.Array:
    """Of every piece's rows the lanes that are its own, all pieces summed: `[B, columns]`.

    What else was multiplied costs nothing: the unit's time is that of taking the tile in. Only registers that have
    lanes of a piece are read, so that what is alive at once is a few of them however many rows there are.
    """
    if run.fold == 1:
        return total
    rows, shared = total.shape[0] // run.fold, max(1, LANES // run.columns)  # pieces of one register's lanes
    width = max(LANES, run.columns)
    parts = []
    for group in range(run.fold // shared):
        lanes = total[:, group * width : (group + 1) * width]
        pieces = [lanes[i * rows : (i + 1) * rows] for i in range(group * shared, (group + 1) * shared)]
        parts.append(pieces[0] if shared == 1 else reduce(add, (_own(each, i, run) for i, each in enumerate(pieces))))
    while len(parts) > 1:
        parts = [one + two for one, two in zip(parts[: len(parts) // 2], parts[len(parts) // 2 :], strict=True)]
    (line,) = parts
    while width > run.columns:
        width //= 2
        line = line + pltpu.roll(line, LANES - width, 1)
    return line[:, : run.columns]


def _own(piece: jax.Array, number: int, run: Run) -> jax.Array:
    """Zero but for the lanes of a register's piece of this number, `[B, 128]`."""
    lane = lax.broadcasted_iota(jnp.int32, piece.shape, 1)
    return jnp.where((lane >= number * run.columns) & (lane < (number + 1) * run.columns), piece, 0.0)


def _by_head(product: p.Product, run: Run, operand: Any, result: Any, core: Core) -> None:
    """Each block with its own head's operand, which is f32: two halves of it go through a bf16 matrix side by side."""
    for block in range(run.blocks):
        head = run.first + core.block * run.blocks + block
        x = operand[head]
        exact = product.dtype == "f32"
        high = x if exact else x.astype(jnp.bfloat16).astype(jnp.float32)
        both = x if exact else jnp.concatenate([high, x - high])
        total = unfolded(_times(_pieces(both.astype(DTYPES[product.dtype]), run.fold), product, run, block, core), run)
        result[head] = total if exact else total[: core.rows] + total[core.rows :]
