"""Whether a stored tensor holds a declared shape, and which part of it."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from attrs import evolve, frozen

from ...dsl.model.ir import Codec


@frozen
class TensorSlice:
    """Turns a stored array into a declared one: drop axes of length 1, take `start .. stop` of `axis`, reshape."""

    squeezed: tuple[int, ...]
    axis: int | None
    start: int
    stop: int
    shape: tuple[int, ...]

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """A view where numpy can make one."""
        array = array.reshape(self.squeezed)
        if self.axis is not None:
            array = array[(slice(None),) * self.axis + (slice(self.start, self.stop),)]
        return array.reshape(self.shape)


def row_axis(shape: tuple[int, ...]) -> int:
    """The axis that `rows` counts: a matrix's outputs, also where matrices are stacked; a vector's only axis."""
    return max(len(shape) - 2, 0)


@lru_cache(maxsize=1 << 12)
def cut(have: tuple[int, ...], want: tuple[int, ...], start: int | None = None, axis: int = 0) -> TensorSlice | None:
    """How to read `want` from `have`; with `start`, from that index of `axis` (of `want`) on.

    Axes of length 1 count for nothing on either side. `None` if the lengths do not fit.
    """
    squeezed = tuple(n for n in have if n != 1)
    if start is None or not want:
        if start or squeezed != tuple(n for n in want if n != 1):
            return None
        return TensorSlice(squeezed, None, 0, 0, want)
    axes_left = [i for i, n in enumerate(want) if n != 1 or i == axis]
    at, lengths = axes_left.index(axis), [want[i] for i in axes_left]
    if len(squeezed) == len(lengths) - 1:
        squeezed = (*squeezed[:at], 1, *squeezed[at:])
    if len(squeezed) != len(lengths) or start < 0 or start + lengths[at] > squeezed[at]:
        return None
    if any(n != m for i, (n, m) in enumerate(zip(squeezed, lengths, strict=True)) if i != at):
        return None
    return TensorSlice(squeezed, at, start, start + lengths[at], want)


@frozen
class Layout:
    """The tensors that a codec reads for one matrix or stack of matrices: shapes, and the formats that are allowed.

    `rows` is where the declared rows begin in the packed tensor's and the scales' row axis.
    """

    packed: tuple[int, ...]
    packed_kinds: tuple[str, ...]
    scale: tuple[int, ...]
    scale_kinds: tuple[str, ...]
    scale_rows: int | None
    skip: int = 0


_REAL = ("f32", "bf16", "f16")


@lru_cache(maxsize=1 << 12)
def layouts(codec: Codec, shape: tuple[int, ...], start: int | None) -> tuple[Layout, ...]:
    """The layouts in which checkpoints keep a matrix, or a stack of them, of `shape`, from row `start` if given.

    Empty where the shape is a vector's or does not divide into the codec's groups.
    """
    if len(shape) < 2:
        return ()
    width, group = shape[-1], codec.group or 0
    if codec.name == "int8":
        return (Layout(shape, ("i8",), shape[:-1], _REAL, start),)
    if codec.name == "fp8":
        first = start or 0
        blocks = -(-(first + shape[-2]) // group) - first // group
        scale = (*shape[:-2], blocks, -(-width // group))
        return (Layout(shape, ("f8_e4m3",), scale, _REAL, None if start is None else first // group, first % group),)
    if not group or width % group or width % 2:
        return ()
    scale = (*shape[:-1], width // group)
    bytes_ = Layout((*shape[:-1], width // 2), ("u8",), scale, _REAL, start)
    if codec.name == "mxfp4":
        return (evolve(bytes_, scale_kinds=("u8", "f8_e8m0")),)
    if codec.name == "nvfp4":
        return (evolve(bytes_, scale_kinds=("f8_e4m3",)),)
    as_words = evolve(bytes_, packed=(*shape[:-1], width // 8), packed_kinds=("i32",))
    return (bytes_, as_words) if width % 8 == 0 else (bytes_,)


def global_cut(
    have: tuple[int, ...], lead: tuple[int, ...], stored_rows: int, start: int, rows: int
) -> TensorSlice | None:
    """How to read a global scale for `rows` rows from `start` of a tensor `[*lead, stored_rows, …]`.

    One for all, one for each of `lead`, or also one for each of k equal pieces of the rows (gate and up stored
    together have a value each); the result broadcasts against `[*lead, rows, width]`.
    """
    squeezed, outer = tuple(n for n in have if n != 1), tuple(n for n in lead if n != 1)
    if not squeezed:
        return TensorSlice((), None, 0, 0, (1,) * (len(lead) + 2))
    if squeezed == outer:
        return TensorSlice(squeezed, None, 0, 0, (*lead, 1, 1))
    if squeezed[:-1] != outer or stored_rows % squeezed[-1]:
        return None
    piece = stored_rows // squeezed[-1]
    if start // piece != (start + rows - 1) // piece:
        return None
    return TensorSlice(squeezed, len(squeezed) - 1, start // piece, start // piece + 1, (*lead, 1, 1))
