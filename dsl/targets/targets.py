"""The table of targets, one row a chip, and what VMEM charges for a buffer.

An installed package adds targets through the entry-point group `mks.targets` (value: a `Target`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import prod

from ..installed import Installed, installed
from .check_target import faults
from .lanes import padded
from .target import Target
from .tpu7x import TPU7X
from .v5e import V5E
from .v5p import V5P
from .v6e import V6E

GROUP = "mks.targets"

targets: dict[str, Target] = {row.name: row for row in (V5E, V5P, V6E, TPU7X)}


@cache
def _brought() -> Installed[Target]:
    return installed(GROUP, Target, faults)


def find(name: str) -> Target | None:
    """A row by name; installed packages are asked only for what is not built in."""
    return targets.get(name) or _brought().good.get(name)


def fault(name: str) -> str | None:
    """Why an installed package's target cannot be used."""
    return _brought().bad.get(name)


def notes(name: str) -> tuple[str, ...]:
    """What people are told of a name that is no target."""
    said = fault(name)
    return ((said,) if said else ()) + (f"known: {', '.join(known())}",)


def known() -> Mapping[str, Target]:
    """All that a schedule can name."""
    return targets | {name: row for name, row in _brought().good.items() if name not in targets}


# Of a number as kernels compute with it and send it; and of one as VMEM may hold it.
BYTES = {"f32": 4, "int32": 4, "bf16": 2}
_HELD = BYTES | {"fp8": 1, "int8": 1}


def padded_bytes(shape: tuple[int, ...], dtype: str) -> int:
    """What VMEM charges for a buffer.

    Lanes round up to 128; rows to a power of two below 8 and to a multiple of 8 from there, and to at least one
    32-bit row. Leading axes are not padded. Source: charged bytes measured on v5e and v7x by compilation.
    """
    size = _HELD[dtype]
    *leading, rows, columns = (1, 1, *shape)
    least = 4 // size
    rows = max(rows, least)
    rows = 1 << (rows - 1).bit_length() if rows < 8 else -(-rows // 8) * 8
    return prod(leading) * rows * padded(columns) * size
