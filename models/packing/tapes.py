"""Weights as a core's Program reads them: tapes in the order of use, rows of vectors, tables of words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from attrs import evolve

from ...dsl.program.analysis.traffic import tape_rows
from ...dsl.program.ir import Product, Program, RingRef, SmallWeightRef, SmallWeightsRef, TableRef
from ...dsl.program.layout.tiling import WIDTH, Run, Tiling
from ..checkpoint.tensors import DTYPES
from .shards import share

type Array = np.ndarray[Any, Any]
# A whole weight of a layer (`None`: the model's own), by its qualified name.
type Read = Callable[[str, int | None], Array]

_ONCE = 4 << 20  # bytes of a table that are made at a time
_PIECE = 8  # words that are moved together: the inputs of every tiling are whole pieces


def pack(matrix: Array, tiling: Tiling) -> Array:
    """`[outputs, inputs]` as the rows of a tape, int32 `[tiling.rows, 512]`; of elements below a byte, whole bytes."""
    return _filled((tiling.rows, WIDTH), blocks([matrix], tiling, matrix.dtype))


def blocks(matrices: Sequence[Array], tiling: Tiling, dtype: np.dtype[Any]) -> Iterator[Array]:
    """The tape of matrices one below the other, a column block at a time: int32 `[n, 512]`.

    The room is used again: what is yielded holds until the next is asked for. Little is ever held, and all of it stays
    in the cache, which is most of the speed.
    """
    for run in tiling.runs:
        rows = tiling.inputs // tiling.per_word // run.fold
        lines = np.zeros((run.columns, rows * run.fold * 4 // dtype.itemsize), dtype)
        gathered = np.empty((rows // _PIECE, run.fold, run.columns), f"V{4 * _PIECE}")
        as_words = gathered.view(np.uint32).reshape(*gathered.shape, _PIECE)
        out = np.empty((rows, WIDTH), np.int32)
        turned = out.view(np.uint32).reshape(rows // _PIECE, _PIECE, run.fold, run.columns)
        for block in range(run.count * run.blocks):
            matrix = _lines(matrices, run.first + block * run.columns, lines)
            pieces = matrix.view(gathered.dtype).reshape(run.columns, run.fold, -1)
            # In two steps, because single words from far apart would each take a line of the cache.
            gathered[:] = pieces.transpose(2, 1, 0)
            turned[:] = as_words.transpose(0, 3, 1, 2)
            yield out


def _lines(matrices: Sequence[Array], first: int, lines: Array) -> Array:
    """The matrices' rows from `first` on, as they are, or else copied, converted and padded into `lines`."""
    count, result, at = len(lines), [], 0
    for matrix in matrices:
        result.append(matrix[max(first - at, 0) : max(first + count - at, 0)])
        at += len(matrix)
    result = [part for part in result if len(part)]
    one = result[0]
    if one.shape == lines.shape and one.dtype == lines.dtype and one.strides[1] == one.itemsize:
        return one
    at = 0
    for part in result:
        lines[at : at + len(part), : part.shape[1]] = part
        at += len(part)
    lines[at:] = 0
    return lines


def _filled(shape: tuple[int, ...], parts: Iterator[Array]) -> Array:
    """An array of what comes, one below the other."""
    out, at = np.empty(shape, np.int32), 0
    for part in parts:
        out[at : at + len(part)] = part
        at += len(part)
    return out


def unpack(rows: Array, tiling: Tiling, dtype: np.dtype[Any]) -> Array:
    """The padded matrix again, `[tiling.outputs, tiling.inputs]`, or as many bytes as its elements take."""
    result, at = [], 0
    for run in tiling.runs:
        count = run.count * sum(run.rows)
        as_words = rows[at : at + count].reshape(run.count * run.blocks, -1, run.fold, run.columns)
        lines = np.ascontiguousarray(as_words.transpose(0, 3, 2, 1)).reshape(run.count * run.blocks * run.columns, -1)
        result.append(lines.view(dtype))
        at += count
    return np.concatenate(result)


def product_blocks(program: Program, product: Product, layer: int | None, read: Read, core: int) -> Iterator[Array]:
    """A product's part of a core's tape, for one layer, as `blocks` gives it."""
    if product.piece:
        one = _one_head(product.tiling)
        heads = _by_head(program, product, layer, read, core)
        return (block for head in heads for block in blocks([head], one, DTYPES[product.dtype]))
    weights = program.instance.model.weights
    parts = [
        share(read(name, owner(program, name, layer)), weights[name], program.shares, core) for name in product.weights
    ]
    return blocks(parts, product.tiling, DTYPES[product.dtype])


def _by_head(program: Program, product: Product, layer: int | None, read: Read, core: int) -> list[Array]:
    """Each head's piece of a weight `[heads * (keys + values), rank]`: keys from ranks, or values."""
    (name,) = product.weights
    own = share(read(name, owner(program, name, layer)), program.instance.model.weights[name], program.shares, core)
    heads = sum(run.count * run.blocks for run in product.tiling.runs)
    by_head = own.reshape(heads, -1, own.shape[1])
    values = program.products[evolve(product.name, piece="expand")].widths[0]
    if product.piece == "expand":
        return [head[-values:] for head in by_head]
    return [np.ascontiguousarray(head[:-values].T) for head in by_head]


def _one_head(tiles: Tiling) -> Tiling:
    """The tiling of one of a head product's blocks."""
    run = tiles.runs[0]
    one = Run(1, 1, run.columns, run.fold, 0, (run.rows[0] // run.blocks,))
    return Tiling(tiles.inputs, tiles.outputs, tiles.bits, (one,))


def owner(program: Program, weight: str, layer: int | None) -> int | None:
    """The layer that a weight used in `layer` is read for; `None` for one of the model."""
    return None if program.instance.model.weights[weight].part is None else layer


def tape(program: Program, ring: RingRef, read: Read, core: int) -> Array:
    """All that passes through a ring, int32 `[rows, 512]`."""
    return _filled(
        (tape_rows(program, ring), WIDTH),
        (
            block
            for name, layer in program.transfers(ring)
            for block in product_blocks(program, program.products[name], layer, read, core)
        ),
    )


def vector_layers(program: Program, name: SmallWeightsRef) -> list[int | None]:
    """The layers that an array of vectors has rows for, in order; `None` alone for the model's own."""
    part = program.arrays[name].part
    layers = program.phase.layer_parts
    return [None] if part is None else [layer for layer, parts in layers.items() if part in parts]


def vector_weights(program: Program, name: SmallWeightsRef) -> tuple[str, ...]:
    """The weights that lie in an array of vectors."""
    views = ((ref, view) for ref, view in program.views.items() if isinstance(ref, SmallWeightRef))
    return tuple(ref.weight for ref, view in views if view.buffer == name)


def vector_row(program: Program, name: SmallWeightsRef, layer: int | None, read: Read, core: int) -> Array:
    """One layer's vectors, f32 `[1, width]`."""
    row = np.zeros((1, program.arrays[name].shape[-1]), np.float32)
    for weight in vector_weights(program, name):
        view, declared = program.views[SmallWeightRef(weight)], program.instance.model.weights[weight]
        values = share(read(weight, owner(program, weight, layer)), declared, program.shares, core).astype(np.float32)
        lines = values.T if view.transposed else values.reshape(1, -1)
        room = -(-lines.shape[1] // 128) * 128
        for i, line in enumerate(lines):
            row[0, view.start + i * room :][: line.size] = line
    return row


def vectors(program: Program, name: SmallWeightsRef, read: Read, core: int) -> Array:
    """Rows of vectors, f32 `[layers, 1, width]`."""
    return np.stack([vector_row(program, name, layer, read, core) for layer in vector_layers(program, name)])


def table_blocks(program: Program, name: TableRef, read: Read, core: int) -> Iterator[Array]:
    """A table some entries at a time, int32 `[n, 1, words]`; used again as in `blocks`."""
    weight = program.instance.model.weights[name.weight]
    dtype = DTYPES[program.instance.dtype(weight.type)]
    values = share(read(weight.name, None), weight, program.shares, core)
    entries, _, words = program.arrays[name].shape
    halves = 4 // dtype.itemsize
    out = np.zeros((max(1, min(entries, _ONCE // (words * 4))), 1, words), np.int32)
    numbers = out.view(dtype).reshape(-1, words, halves)
    for at in range(0, entries, len(out)):
        some = values[at : at + len(out)]
        for half in range(halves):
            part = some[:, half * words : (half + 1) * words]
            numbers[: len(some), : part.shape[1], half] = part
        yield out[: len(some)]


def lookup_table(program: Program, name: TableRef, read: Read, core: int) -> Array:
    """Rows of words, int32 `[entries, 1, words]`; of bf16 the first half of a row is in the low halves."""
    return _filled(program.arrays[name].shape, table_blocks(program, name, read, core))
