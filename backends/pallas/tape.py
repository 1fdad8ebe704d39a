"""A tape's table: where each transfer begins and which size it has, in the order of use."""

from __future__ import annotations

import numpy as np

from ...dsl.program import ir as p

KIND_BITS = 4


def kinds(program: p.Program, ring: str) -> tuple[int, ...]:
    """The different sizes of a ring's transfers, in tape rows."""
    return tuple(
        sorted({rows for made in program.products.values() if made.ring == ring for rows in made.tiling.transfers})
    )


def table(program: p.Program, ring: str) -> np.ndarray:
    """int32: the first row over 8, and the kind; after the last transfer, one for each slot that does nothing."""
    sizes, entries, row = kinds(program, ring), [], 0
    for name, _ in program.transfers(ring):
        for rows in program.products[name].tiling.transfers:
            entries.append(row // 8 << KIND_BITS | sizes.index(rows))
            row += rows
    idle = (1 << KIND_BITS) - 1
    return np.asarray(entries + [idle] * program.rings[ring].slots, np.int32)


def rows(program: p.Program, ring: str) -> int:
    """The tape's length."""
    return sum(program.products[name].tiling.rows for name, _ in program.transfers(ring))
