"""Whether a GGUF file is whole, before its library walks it: that walk trusts every count that the file states."""

from __future__ import annotations

import struct
from math import prod
from typing import Any

from attrs import define
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

# Bytes of the scalar metadata types by number; 8 is a string and 9 an array.
_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
_MOST_AXES = 4


class BrokenGguf(ValueError):
    """What is wrong with the file, in words."""


class CutShort(BrokenGguf):
    """The file ends before what it announces."""


@define
class _Cursor:
    data: Any
    size: int
    at: int = 0

    def skip(self, count: int) -> int:
        """Move on; the place before."""
        before, self.at = self.at, self.at + count
        if self.at > self.size:
            raise CutShort(f"{self.size} bytes, and byte {self.at - 1} belongs to its header")
        return before

    def number(self, form: str) -> int:
        """One little-endian number."""
        at = self.skip(struct.calcsize(form))
        return struct.unpack_from(form, self.data, at)[0]

    def string(self) -> str:
        """A length and UTF-8."""
        length = self.number("<Q")
        at = self.skip(length)
        try:
            return bytes(self.data[at : at + length]).decode("utf-8")
        except UnicodeDecodeError:
            raise BrokenGguf(f"the text at byte {at} is not UTF-8") from None

    def value(self, kind: int, depth: int = 0) -> int | None:
        """Skip a metadata value; its number if it is one small one."""
        if kind == _STRING:
            self.string()
        elif kind == _ARRAY and depth < 4:
            inner, count = self.number("<I"), self.number("<Q")
            if inner in _SCALARS:
                self.skip(_SCALARS[inner] * count)
            else:
                for _ in range(count):
                    self.value(inner, depth + 1)
        elif kind == 4:
            return self.number("<I")
        elif kind in _SCALARS:
            self.skip(_SCALARS[kind])
        else:
            raise BrokenGguf(f"metadata of type {kind} at byte {self.at}")
        return None


def check_header(data: Any, size: int) -> None:
    """Raise `BrokenGguf` unless all counts, names, types and offsets of the header lie within the file."""
    cursor = _Cursor(data, size)
    if bytes(data[:4]) != b"GGUF":
        raise BrokenGguf("it does not begin with `GGUF`")
    cursor.skip(4)
    version = cursor.number("<I")
    if version not in (2, 3):
        raise BrokenGguf(f"version {version}; 2 and 3 are read")
    tensors, entries = cursor.number("<Q"), cursor.number("<Q")
    alignment, keys, names = 32, set(), set()
    for _ in range(entries):
        key = cursor.string()
        if key in keys:
            raise BrokenGguf(f"the key `{key}` occurs twice")
        keys.add(key)
        value = cursor.value(cursor.number("<I"))
        if key == "general.alignment":
            alignment = value or 0
    if alignment < 8 or alignment & (alignment - 1):
        raise BrokenGguf(f"an alignment of {alignment}")
    ends = []
    for _ in range(tensors):
        name, end = _tensor(cursor)
        if name in names:
            raise BrokenGguf(f"the tensor `{name}` occurs twice")
        names.add(name)
        ends.append((end, name))
    start = -(-cursor.at // alignment) * alignment
    last, name = max(ends, default=(0, ""))
    if ends and start + last > size:
        raise CutShort(f"{size} bytes, and `{name}` ends at {start + last}")


def _tensor(cursor: _Cursor) -> tuple[str, int]:
    """Name and end of a tensor, counted from the start of all."""
    name, axes = cursor.string(), cursor.number("<I")
    if axes > _MOST_AXES:
        raise BrokenGguf(f"`{name}` has {axes} axes")
    shape = [cursor.number("<Q") for _ in range(axes)]
    if not prod(shape) or not shape:
        raise BrokenGguf(f"`{name}` has shape {shape}")
    kind, offset = cursor.number("<I"), cursor.number("<Q")
    try:
        block, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    except (ValueError, KeyError):
        raise BrokenGguf(f"`{name}` is of unknown type {kind}") from None
    if shape[0] % block:
        raise BrokenGguf(f"`{name}` has rows of {shape[0]} elements, which is no multiple of {block}")
    return name, offset + prod(shape) // block * size
