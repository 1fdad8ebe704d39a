"""A safetensors file as views of a memory map, and a writer that holds one tensor at a time."""

from __future__ import annotations

import json
import mmap
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from attrs import field, frozen

from ...dsl.diagnostics import Sink
from .safetensors_header import check_start, read_header
from .tensors import BITS, DTYPES


@frozen
class SafeTensor:
    """A tensor of a mapped safetensors file."""

    name: str
    file: str
    kind: str
    shape: tuple[int, ...]
    begin: int
    nbytes: int
    mapped: mmap.mmap = field(repr=False, eq=False)

    def array(self) -> np.ndarray:
        """A read-only view of the map."""
        # The package's numpy reader copies each tensor; weights must not pass through anonymous memory.
        dtype = DTYPES[self.kind]
        return np.frombuffer(self.mapped, dtype, self.nbytes // dtype.itemsize, self.begin).reshape(self.shape)

    def release(self) -> None:
        """Let the system drop its pages."""
        drop_pages(self.mapped, self.begin, self.nbytes)


def drop_pages(mapped: mmap.mmap, begin: int, nbytes: int) -> None:
    """Tell the system that a range of a map is not needed now; a no-op where it cannot be told."""
    advice = getattr(mmap, "MADV_DONTNEED", None)
    if advice is not None and nbytes:
        start = begin // mmap.PAGESIZE * mmap.PAGESIZE
        mapped.madvise(advice, start, begin + nbytes - start)


def map_file(path: Path, sink: Sink) -> mmap.mmap | None:
    """A file's bytes as a read-only map."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            sink.report("E401", f"`{path}` is not a file")
            return None
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                check_start(str(path), b"", 0, sink)
                return None
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as e:
        sink.report("E401", f"`{path}` cannot be read: {e.strerror or e}")
        return None


def open_safetensors(path: Path, sink: Sink) -> dict[str, SafeTensor] | None:
    """The tensors of one file by name; what is wrong with it goes to the sink."""
    mapped = map_file(path, sink)
    if mapped is None:
        return None
    read = read_header(str(path), mapped, len(mapped), sink)
    if read is None:
        return None
    entries, start = read
    return {
        name: SafeTensor(name, str(path), e.kind, e.shape, start + e.begin, e.end - e.begin, mapped)
        for name, e in entries.items()
    }


def write_safetensors(
    path: Path, tensors: Iterable[tuple[str, str, tuple[int, ...], Callable[[], np.ndarray]]]
) -> None:
    """Write `(name, kind, shape, array)` one by one; `array` is called when its turn comes.

    The package's writer takes all arrays at once, which doubles a model in memory.
    """
    tensors = list(tensors)
    header, at = {}, 0
    for name, kind, shape, _ in tensors:
        size = int(np.prod(shape, dtype=object)) * BITS[kind] // 8
        header[name] = {"dtype": kind.upper(), "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, kind, shape, array in tensors:
            value = np.ascontiguousarray(array(), DTYPES[kind])
            if value.shape != shape:
                raise ValueError(f"`{name}` was announced as {shape} and is {value.shape}")
            file.write(value.reshape(-1).view(np.uint8).data)
