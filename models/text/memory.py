"""Memory that was freed, given back to the system."""

from __future__ import annotations

import ctypes
import sys
from functools import cache


def give_back() -> None:
    """Return freed memory of native code to the system, where the C library can be asked to; a few milliseconds."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> ctypes._NamedFuncPointer | None:
    """glibc's `malloc_trim`, which no other C library has."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
