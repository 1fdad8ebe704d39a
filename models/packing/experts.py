"""One core's experts as kernels fetch them: shares of an expert's matrices in one array, as stored or re-blocked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import gcd
from typing import Any

import numpy as np

from ...dsl.model import ir as m
from ...dsl.program.layout.expert_layout import GROUP, OCTET, Block, ExpertLayout, ExpertProduct
from ...dsl.program.layout.tiling import WIDTH
from ...dsl.schedule.shares import Shares
from ..checkpoint.read import Quantised
from ..checkpoint.tensors import DTYPES
from . import tapes
from .requantize import BlockError, reblocked
from .shards import ranges

type Array = np.ndarray[Any, Any]
type Matrix = Quantised | Array  # `[outputs, inputs]` of one expert: `Quantised` for `mxfp4` and `fp8`
# A matrix of an expert: the whole one of a weight, by its qualified name.
type ReadExpert = Callable[[str, int], Matrix]


def expert_share(matrix: Matrix, weight: m.Weight, shares: Shares, core: int) -> Matrix:
    """What `core` holds of one expert's matrix of a weight `[experts, outputs, inputs]`, as `shares` say.

    A share that cuts groups of 32 inputs has shorter groups, all of one length, each with its own copy of the scale.
    Padding is zeros at the end of an axis. A view where it can be.
    """
    _, rows, inputs = ranges(weight, shares, core)
    outputs, width = shares.weight_shape(weight)[1:]
    if not isinstance(matrix, Quantised):
        return _padded(matrix[rows.start : rows.stop, inputs.start : inputs.stop], outputs, width)
    group = gcd(GROUP, width)
    codes = _nibbles(matrix.codes[rows.start : rows.stop], inputs)
    scales = matrix.scales[rows.start : rows.stop]
    if group == GROUP:
        scales = scales[:, inputs.start // GROUP : inputs.stop // GROUP]
    else:
        scales = scales[:, np.arange(inputs.start, inputs.stop, group) // GROUP]
    return Quantised(_padded(codes, outputs, -(-width // 2)), _padded(scales, outputs, width // group))


def _nibbles(codes: Array, inputs: range) -> Array:
    """The codes of some inputs, two a byte; a last byte may be half empty."""
    if inputs.start % 2 == 0 and len(inputs) % 2 == 0:
        return codes[:, inputs.start // 2 : inputs.stop // 2]
    single = np.stack([codes & 15, codes >> 4], axis=-1).reshape(len(codes), -1)[:, inputs.start : inputs.stop]
    single = np.pad(single, ((0, 0), (0, len(inputs) % 2)))
    return single[:, ::2] | single[:, 1::2] << 4


def _padded(array: Array, rows: int, columns: int) -> Array:
    if array.shape == (rows, columns):
        return array
    return np.pad(array, ((0, rows - array.shape[0]), (0, columns - array.shape[1])))


def pack_expert(matrices: Sequence[Matrix], layout: ExpertLayout) -> Array:
    """Shares of an expert's matrices, in the layout's order, as int32 `[layout.rows, 512]`."""
    out, left = np.zeros((layout.rows, WIDTH), np.int32), list(matrices)
    for product in layout.products:
        own, left = left[: len(product.widths)], left[len(product.widths) :]
        assert [_outputs(matrix) for matrix in own] == list(product.widths)
        plain = [matrix.codes if isinstance(matrix, Quantised) else matrix for matrix in own]
        dtype = np.dtype(np.uint8) if product.group else DTYPES[product.codec.name]
        at = product.row
        for block in tapes.blocks(plain, product.tiling, dtype):
            out[at : at + len(block)] = block
            at += len(block)
        if product.group:
            scales = np.concatenate([matrix.scales for matrix in own if isinstance(matrix, Quantised)])
            out[product.scale_row : product.end] = _scale_rows(scales, product)
    return out


def _outputs(matrix: Matrix) -> int:
    return len(matrix.codes if isinstance(matrix, Quantised) else matrix)


def _scale_rows(scales: Array, product: ExpertProduct) -> Array:
    """Scales u8 `[outputs, groups]` as a product's rows of them."""
    rows = product.end - product.scale_row
    blocks = np.zeros((rows // OCTET, OCTET, WIDTH, 4), np.uint8)
    for block in product.blocks:
        for octet, piece, groups in _octets(product, block):
            row, byte = product.place(octet)
            lanes = slice(piece * block.columns, (piece + 1) * block.columns)
            part = scales[block.first : block.first + block.columns, groups.start : groups.stop].T
            room = blocks[(row - product.scale_row) // OCTET, :, lanes, byte]
            room[: part.shape[0], : part.shape[1]] = part
    return blocks.view("<i4").reshape(rows, WIDTH)


def _octets(product: ExpertProduct, block: Block) -> Iterator[tuple[int, int, range]]:
    """A block's octets: each one's number, and for each piece of the inputs that lies in it the groups."""
    each = -(-(product.tiling.inputs // block.fold) // product.group)
    for octet in range(product.octets(block.fold)):
        for piece in range(block.fold):
            first = piece * each
            yield (
                block.octet + octet,
                piece,
                range(first + octet * OCTET, first + min((octet + 1) * OCTET, each)),
            )


def unpack_expert(rows: Array, layout: ExpertLayout) -> tuple[Matrix, ...]:
    """The shares of an expert's matrices again, not padded."""
    matrices: list[Matrix] = []
    for product in layout.products:
        dtype = np.dtype(np.uint8) if product.group else DTYPES[product.codec.name]
        numbers = tapes.unpack(rows[product.row : product.row + product.tiling.rows], product.tiling, dtype)
        numbers = numbers[:, : -(-product.inputs * product.tiling.bits // (8 * dtype.itemsize))]
        scales = _scales(rows, product) if product.group else None
        at = 0
        for width in product.widths:
            part = numbers[at : at + width]
            matrices.append(part if scales is None else Quantised(part, scales[at : at + width]))
            at += width
    return tuple(matrices)


def _scales(rows: Array, product: ExpertProduct) -> Array:
    """A product's scales u8 `[outputs, groups]`."""
    blocks = np.ascontiguousarray(rows[product.scale_row : product.end]).view(np.uint8).reshape(-1, OCTET, WIDTH, 4)
    scales = np.zeros((product.tiling.outputs, -(-product.tiling.inputs // product.group)), np.uint8)
    for block in product.blocks:
        for octet, piece, groups in _octets(product, block):
            row, byte = product.place(octet)
            lanes = slice(piece * block.columns, (piece + 1) * block.columns)
            part = blocks[(row - product.scale_row) // OCTET, : len(groups), lanes, byte]
            scales[block.first : block.first + block.columns, groups.start : groups.stop] = part.T
    return scales[:, : product.groups]


def bank_expert(
    read: ReadExpert, weights: Sequence[m.Weight], layout: ExpertLayout, shares: Shares, core: int, number: int
) -> Array:
    """One of a core's experts of a layer, int32 `[layout.rows, 512]`; one that only pads its share is zeros.

    `weights` are the layout's, in its order. Raises `BlockError` where a matrix cannot be re-blocked without loss.
    """
    experts = ranges(weights[0], shares, core)[0]
    if number >= len(experts):
        return np.zeros((layout.rows, WIDTH), np.int32)
    products, matrices = (product for product in layout.products for _ in product.widths), []
    for weight, product in zip(weights, products, strict=True):
        share = expert_share(read(weight.name, experts[number]), weight, shares, core)
        if product.codec.name == "fp8":
            assert isinstance(share, Quantised)
            try:
                share = reblocked(share, product.inputs, product.group)
            except BlockError as e:
                _, rows, inputs = ranges(weight, shares, core)
                raise e.at(weight.name, experts[number], rows.start, inputs.start) from None
        matrices.append(share)
    return pack_expert(matrices, layout)
