"""Weights as a core's Program reads them: tapes in the order of use, rows of vectors, tables of words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from ..dsl.program.ir import Product, Program
from ..dsl.program.tiles import WIDTH, Run, Tiling
from .shares import share

type Array = np.ndarray[Any, Any]
# A whole weight of a layer (`None`: the model's own), by its qualified name.
type Read = Callable[[str, int | None], Array]

DTYPES = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16), "int32": np.dtype(np.int32)}


def pack(matrix: Array, tiling: Tiling) -> Array:
    """`[outputs, inputs]` of 16 or 32 bits as the rows of a tape, int32 `[tiling.rows, 512]`."""
    outputs, inputs = matrix.shape
    padded = np.pad(matrix, ((0, tiling.outputs - outputs), (0, tiling.inputs - inputs)))
    return np.concatenate([_words(_block(padded, run.first, run.count * run.blocks, run.columns, run.fold))
                           for run in tiling.runs])  # fmt: skip


def unpack(rows: Array, tiling: Tiling, dtype: np.dtype[Any]) -> Array:
    """The padded matrix again, `[tiling.outputs, tiling.inputs]`."""
    found, at = [], 0
    for run in tiling.runs:
        count = run.count * sum(run.rows)
        blocks = run.count * run.blocks
        values = _numbers(rows[at : at + count], dtype).reshape(blocks, -1, run.fold, run.columns)
        found.append(values.transpose(0, 3, 2, 1).reshape(blocks * run.columns, tiling.inputs))
        at += count
    return np.concatenate(found)


def _block(matrix: Array, first: int, blocks: int, columns: int, fold: int) -> Array:
    """Column blocks, one below the other, with the folded inputs side by side: `[rows, 512]`."""
    inputs = matrix.shape[1]
    part = matrix[first : first + blocks * columns].reshape(blocks, columns, fold, inputs // fold)
    return part.transpose(0, 3, 2, 1).reshape(-1, WIDTH)


def _words(rows: Array) -> Array:
    """Two rows of 16 bits to a row of words, the first in the low half."""
    if rows.dtype.itemsize == 4:
        return rows.view(np.int32)
    halves = rows.view(np.uint16).astype(np.uint32)
    return (halves[::2] | halves[1::2] << 16).view(np.int32)


def _numbers(words: Array, dtype: np.dtype[Any]) -> Array:
    if dtype.itemsize == 4:
        return words.view(dtype)
    halves = words.view(np.uint32)
    rows = np.stack([halves & 0xFFFF, halves >> 16], axis=1).astype(np.uint16)
    return rows.reshape(-1, words.shape[1]).view(dtype)


def product_rows(program: Program, product: Product, layer: int | None, read: Read, core: int) -> Array:
    """A product's part of a core's tape, for one layer."""
    if product.piece:
        one = _one_head(product.tiling)
        return np.concatenate([pack(matrix, one) for matrix in _by_head(program, product, layer, read, core)])
    weights = program.instance.model.weights
    parts = [
        share(read(name, _own(program, name, layer)), weights[name], program.shares, core) for name in product.weights
    ]
    matrix = np.concatenate([part.astype(DTYPES[product.dtype], copy=False) for part in parts])
    return pack(matrix, product.tiling)


def _by_head(program: Program, product: Product, layer: int | None, read: Read, core: int) -> list[Array]:
    """Each head's piece of a weight `[heads * (keys + values), rank]`: keys from ranks, or values."""
    (name,) = product.weights
    held = share(read(name, _own(program, name, layer)), program.instance.model.weights[name], program.shares, core)
    heads = sum(run.count * run.blocks for run in product.tiling.runs)
    by_head = held.astype(DTYPES[product.dtype], copy=False).reshape(heads, -1, held.shape[1])
    values = program.products[f"{product.name.rpartition(' ')[0]} expand"].widths[0]
    if product.piece == "expand":
        return [head[-values:] for head in by_head]
    return [head[:-values].T for head in by_head]


def _one_head(tiles: Tiling) -> Tiling:
    """The tiling of one of a head product's blocks."""
    run = tiles.runs[0]
    one = Run(1, 1, run.columns, run.fold, 0, (run.rows[0] // run.blocks,))
    return Tiling(tiles.inputs, tiles.outputs, tiles.bits, (one,))


def _own(program: Program, weight: str, layer: int | None) -> int | None:
    return None if program.instance.model.weights[weight].part is None else layer


def tape(program: Program, ring: str, read: Read, core: int) -> Array:
    """All that passes through a ring, int32 `[rows, 512]`."""
    return np.concatenate([product_rows(program, program.products[name], layer, read, core)
                           for name, layer in program.transfers(ring)])  # fmt: skip


def vectors(program: Program, name: str, read: Read, core: int) -> Array:
    """Rows of vectors, f32 `[layers, 1, width]`."""
    array = program.arrays[name]
    layers = program.shares.instance.layer_parts("")
    mine = [layer for layer, parts in layers.items() if array.part in parts] if array.part is not None else [None]
    found = np.zeros(array.shape, np.float32)
    for index, layer in enumerate(mine):
        for weight, view in program.views.items():
            if view.buffer != name:
                continue
            declared = program.instance.model.weights[weight]
            values = share(read(weight, _own(program, weight, layer)), declared, program.shares, core).astype(
                np.float32
            )
            lines = values.T if view.transposed else values.reshape(1, -1)
            room = -(-lines.shape[1] // 128) * 128
            for i, line in enumerate(lines):
                found[index, 0, view.start + i * room :][: line.size] = line
    return found


def lookup_table(program: Program, name: str, read: Read, core: int) -> Array:
    """Rows of words, int32 `[entries, 1, words]`; of bf16 the first half of a row is in the low halves."""
    weight = program.instance.model.weights[name.removeprefix("table ")]
    dtype = DTYPES[program.instance.dtype(weight.type)]
    values = share(read(weight.name, None), weight, program.shares, core).astype(dtype, copy=False)
    entries, _, words = program.arrays[name].shape
    padded = np.pad(values, ((0, 0), (0, words * 4 // dtype.itemsize - values.shape[1])))
    if dtype.itemsize == 4:
        return padded.view(np.int32).reshape(entries, 1, words)
    halves = padded.view(np.uint16).astype(np.uint32)
    return (halves[:, :words] | halves[:, words:] << 16).view(np.int32).reshape(entries, 1, words)


def packed(program: Program, read: Read, core: int) -> dict[str, Array]:
    """Everything that one core reads, by the names of the Program's operands."""
    found = {f"tape {ring}": tape(program, ring, read, core) for ring in program.rings}
    for array in program.arrays.values():
        if array.kind == "vectors":
            found[array.name] = vectors(program, array.name, read, core)
        elif array.kind == "table":
            found[array.name] = lookup_table(program, array.name, read, core)
    return found
