"""Weights as arrays: decoded, in the instance's dtype, in the declared shape."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from attrs import frozen

from ...dsl.diagnostics import Diagnostic, Label, MksError
from ...dsl.model import ir as m
from . import codecs
from .binding import Binding, Entry, Piece, Scales, Source
from .tensors import DTYPES


def read(binding: Binding, name: str, layer: int | None = None) -> np.ndarray:
    """A weight of a layer, `instance.shape(weight.shape)` in f32 or `ml_dtypes.bfloat16`.

    A read-only view of the file's map where the file holds just that. A codec's plain form comes as it is stored, not
    quantised. Raises `MksError` (E427) where a scale has a value that its format does not allow.
    """
    name, layer = binding.key(name, layer)
    weight, source = binding.instance.model.weights[name], binding.sources[name, layer]
    dtype = DTYPES[binding.instance.dtype(weight.type)]
    shape = binding.instance.shape(weight.shape)
    if not source.axes and not source.packed:
        array = source.pieces[0].cut(source.pieces[0].tensor.array())
        return np.require(array.astype(dtype, copy=False), requirements=["C", "A"]).reshape(shape)
    out = np.empty(shape, dtype)
    for index, piece in zip(_indices(shape, source), source.pieces, strict=True):
        if piece.scales is None:
            out[index] = piece.cut(piece.tensor.array())
        else:
            _decode(weight, piece, out[index])
    return out


def read_all(binding: Binding) -> Iterator[tuple[Entry, np.ndarray]]:
    """All weights, the model's first, then layer by layer, aliases excepted.

    The pages of a weight are dropped when the next one is asked for.
    """
    for entry in binding.entries():
        yield entry, read(binding, entry.weight, entry.layer)
        release(binding, entry.weight, entry.layer)


def release(binding: Binding, name: str, layer: int | None = None) -> None:
    """Let the system drop the pages of a weight that was read; arrays stay valid and read the file again."""
    for piece in binding.sources[binding.key(name, layer)].pieces:
        piece.tensor.release()
        if piece.scales is not None:
            piece.scales.tensor.release()


@frozen
class Quantised:
    """A matrix of codes u8 and scales u8 by groups of inputs, where byte b means 2 ** (b - 127).

    As `mxfp4` stores it codes are `[outputs, inputs / 2]`, the low nibble first, and groups are of 32 inputs; a share
    of a matrix may have shorter ones. Re-blocked they are e4m3 numbers, `[outputs, inputs]`, and groups are longer.
    """

    codes: np.ndarray
    scales: np.ndarray


def read_expert(binding: Binding, name: str, layer: int | None, expert: int) -> Quantised | np.ndarray:
    """One matrix of a weight that has one for each expert, as it is stored: a read-only view of the file's map.

    Where the checkpoint holds plain numbers instead of `mxfp4`, these, `[outputs, inputs]` in the instance's dtype.
    Raises `MksError` (E427) as `read` does.
    """
    name, layer = binding.key(name, layer)
    weight, source = binding.instance.model.weights[name], binding.sources[name, layer]
    assert source.axes in ((), (0,))
    piece = source.pieces[expert if source.axes else 0]
    matrix = piece.cut(piece.tensor.array())
    if not source.axes:
        matrix = matrix[expert]
    if piece.scales is None:
        return matrix.astype(DTYPES[binding.instance.dtype(weight.type)], copy=False)
    scales = piece.scales.cut(piece.scales.tensor.array()).view(np.uint8)
    if not source.axes:
        scales = scales[expert]
    if scales.min() == 0 or scales.max() >= 253:  # decoding says whether that is allowed
        try:
            codecs.mxfp4(matrix, scales)
        except codecs.BadScale as e:
            raise _refused(weight, piece.scales, e) from None
    return Quantised(matrix, scales)


def release_expert(binding: Binding, name: str, layer: int | None, expert: int) -> None:
    """Let the system drop the pages of a matrix that was read, and of those in its tensor."""
    source = binding.sources[binding.key(name, layer)]
    piece = source.pieces[expert if source.axes else 0]
    piece.tensor.release()
    if piece.scales is not None:
        piece.scales.tensor.release()


def _indices(shape: tuple[int, ...], source: Source) -> Iterator[tuple[int | slice, ...]]:
    """Where in the whole each piece goes."""
    for numbers in product(*(range(shape[axis]) for axis in source.axes)):
        index: list[int | slice] = [slice(None)] * len(shape)
        for axis, number in zip(source.axes, numbers, strict=True):
            index[axis] = number
        yield tuple(index)


def _decode(weight: m.Weight, piece: Piece, out: np.ndarray) -> None:
    """Unpack into `out`, matrix by matrix, so that only one is held in f32."""
    scales = piece.scales
    assert scales is not None
    packed, scale = piece.cut(piece.tensor.array()), scales.cut(scales.tensor.array())
    spread = None
    if scales.global_tensor is not None and scales.global_cut is not None:
        taken = scales.global_cut(scales.global_tensor.array())
        spread = np.broadcast_to(taken, (*packed.shape[:-2], 1, 1))
    try:
        for index in np.ndindex(packed.shape[:-2]):
            one = None if spread is None else spread[index]
            out[index] = _matrix(weight, packed[index], scale[index], one, scales.skip)
    except codecs.BadScale as e:
        raise _refused(weight, scales, e) from None


def _refused(weight: m.Weight, scales: Scales, error: codecs.BadScale) -> MksError:
    return MksError(
        [
            Diagnostic(
                "E427",
                f"the scales of `{weight.name}` hold what {weight.codec} does not allow",
                Label(weight.span),
                (),
                (f"`{scales.tensor.name}`: {error}",),
            )
        ]
    )


def _matrix(
    weight: m.Weight, packed: np.ndarray, scale: np.ndarray, global_scale: np.ndarray | None, skip: int
) -> np.ndarray:
    match weight.codec.name:
        case "mxfp4":
            values = codecs.mxfp4(packed, scale)
        case "nvfp4":
            return codecs.nvfp4(packed, scale, np.ones((1, 1)) if global_scale is None else global_scale)
        case "int8":
            values = codecs.int8(packed, scale)
        case "int4":
            values = codecs.int4(packed, scale, weight.codec.group or 1)
        case _:
            values = codecs.fp8(packed, scale, weight.codec.group or 1, skip)
    return values if global_scale is None else values * global_scale.astype(np.float32)
