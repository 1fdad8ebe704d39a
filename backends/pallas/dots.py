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

from ...dsl.program import ir as p
from ...dsl.program.tiles import Run
from .core import Core

_DTYPES = {"f32": jnp.float32, "bf16": jnp.bfloat16}


def dot(op: p.Dot, core: Core) -> None:
    """All blocks of one iteration; a block's dots are one sum, with no wait between, so that they stay in the unit."""
    product = core.program.products[op.product]
    run, operand, result = product.tiling.runs[op.run], core.refs[product.operand], core.refs[product.result]
    if product.piece:
        _by_head(product, run, operand, result, core)
        return
    pieces = product.tiling.inputs // run.fold
    x = [operand[:, i * pieces : (i + 1) * pieces] for i in range(run.fold)]
    first = core.block * (run.blocks * run.columns) if run.count > 1 else 0
    for block in range(run.blocks):
        total = reduce(add, _dots(product, run, block, x, core))
        at = run.first + first + block * run.columns
        result[:, pl.ds(at if isinstance(at, int) else pl.multiple_of(at, run.columns), run.columns)] = total


def _dots(product: p.Product, run: Run, block: int, x: list[jax.Array], core: Core) -> list[jax.Array]:
    dtype, ring, found, at = _DTYPES[product.dtype], core.refs[product.ring], [], 0
    per_word = product.tiling.per_word
    for slot, rows in core.arrived:
        words = rows // run.blocks
        tile = pltpu.bitcast(ring[slot, block * words : (block + 1) * words], dtype)
        for piece, each in enumerate(x):
            columns = tile if run.fold == 1 else tile[:, piece * run.columns : (piece + 1) * run.columns]
            found.append(_dot(each[:, at : at + words * per_word], columns))
        at += words * per_word
    return found


def _by_head(product: p.Product, run: Run, operand: Any, result: Any, core: Core) -> None:
    """Each block with its own head's operand, which is f32: two halves of it go through a bf16 matrix side by side."""
    pieces = product.tiling.inputs // run.fold
    slot, words = core.arrived[0][0], core.arrived[0][1] // run.blocks
    for block in range(run.blocks):
        head = run.first + core.block * run.blocks + block
        tile = pltpu.bitcast(core.refs[product.ring][slot, block * words : (block + 1) * words], _DTYPES[product.dtype])
        x = operand[head]
        halves = [x] if product.dtype == "f32" else [high := x.astype(jnp.bfloat16), (x - high).astype(jnp.bfloat16)]
        lhs = jnp.concatenate(halves) if len(halves) > 1 else x
        dots = [_dot(lhs[:, i * pieces : (i + 1) * pieces], tile[:, i * run.columns : (i + 1) * run.columns])
                for i in range(run.fold)]  # fmt: skip
        total = reduce(add, dots)
        result[head] = total if len(halves) == 1 else total[: core.rows] + total[core.rows :]


def _dot(x: jax.Array, w: jax.Array) -> jax.Array:
    exact = lax.Precision.HIGHEST if w.dtype == jnp.float32 else None
    return lax.dot_general(x, w, (((1,), (0,)), ((), ())), precision=exact, preferred_element_type=jnp.float32)
