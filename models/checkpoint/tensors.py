"""What a checkpoint is, whichever files it comes from: named tensors and a config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import ml_dtypes
import numpy as np
from attrs import field, frozen

# Number formats by name (safetensors' own, in lower case): bits an element, and numpy's dtype where it has one.
# Sub-byte formats are known so that their sizes can be checked; nothing here reads them.
BITS: dict[str, int] = {
    "bool": 8,
    "u8": 8,
    "i8": 8,
    "u16": 16,
    "i16": 16,
    "u32": 32,
    "i32": 32,
    "u64": 64,
    "i64": 64,
    "f4": 4,
    "f6_e2m3": 6,
    "f6_e3m2": 6,
    "f8_e4m3": 8,
    "f8_e5m2": 8,
    "f8_e8m0": 8,
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "f64": 64,
    "c64": 64,
}
DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(dtype)
    for name, dtype in {
        "u8": np.uint8,
        "i8": np.int8,
        "u16": np.uint16,
        "i16": np.int16,
        "u32": np.uint32,
        "i32": np.int32,
        "u64": np.uint64,
        "i64": np.int64,
        "f8_e4m3": ml_dtypes.float8_e4m3fn,
        "f8_e5m2": ml_dtypes.float8_e5m2,
        "f8_e8m0": ml_dtypes.float8_e8m0fnu,
        "f16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "f32": np.float32,
        "f64": np.float64,
    }.items()
}


class Stored(Protocol):
    """A tensor in a file."""

    @property
    def name(self) -> str:
        """What the checkpoint calls it."""

    @property
    def file(self) -> str:
        """The file's path, for messages."""

    @property
    def kind(self) -> str:
        """The number format, a key of `BITS`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Axis lengths, outermost first."""

    @property
    def begin(self) -> int:
        """Where in the file its bytes begin."""

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""

    def array(self) -> np.ndarray:
        """The numbers, read-only: a view of the file's mapping where the file holds them as they are."""

    def release(self) -> None:
        """Let the system drop the pages that `array` touched; views stay valid and read the file again."""


@frozen
class Checkpoint:
    """Tensors by name; `config` is `config.json`, or the same made from a GGUF file's metadata."""

    path: Path
    config: Mapping[str, Any] | None = field(eq=False, repr=False)
    tensors: Mapping[str, Stored] = field(eq=False, repr=False)


def listed(words: list[str], limit: int = 5) -> str:
    """`a, b, c … and 7 more`."""
    rest = len(words) - limit
    return ", ".join(words[:limit]) + (f" … and {rest} more" if rest > 0 else "")
