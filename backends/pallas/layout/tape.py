"""A tape's table: where each transfer begins and which size it has, in the order of use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from attrs import frozen

from ....dsl.program import ir as p
from ....dsl.program.ir.walk import Path, executed

KIND_BITS = 4
# The size of what follows the last transfer.
IDLE = 0


@frozen
class Starts:
    """What a `Start` starts in a step, for each of its transfers: how often one of so many rows, `IDLE` if none.

    It is the `number`th in the order of the text.
    """

    number: int
    counts: tuple[Counter[int], ...]

    def scope(self, i: int, rows: int) -> str:
        """The named scope in which its transfer `i` is started if it is of so many rows."""
        return f"start {self.number}.{i} of {rows}"


def kinds(program: p.Program, ring: p.RingRef) -> tuple[int, ...]:
    """The different sizes of a ring's transfers, in tape rows."""
    return tuple(
        sorted({rows for made in program.products.values() if made.ring == ring for rows in made.tiling.transfers})
    )


def table(program: p.Program, ring: p.RingRef) -> np.ndarray:
    """int32: the first row over 8, and the kind; after the last transfer, one for each slot that does nothing."""
    sizes, entries, row = kinds(program, ring), [], 0
    for name, _ in program.transfers(ring):
        for rows in program.products[name].tiling.transfers:
            entries.append(row // 8 << KIND_BITS | sizes.index(rows))
            row += rows
    idle = (1 << KIND_BITS) - 1
    return np.asarray(entries + [idle] * program.rings[ring].slots, np.int32)


def first_rows(program: p.Program) -> dict[p.ProductRef, tuple[int, ...]]:
    """By product, the row of its tape from which on it lies, for each layer that runs it in order."""
    found: dict[p.ProductRef, tuple[int, ...]] = dict.fromkeys(program.products, ())
    for ring in program.rings:
        row = 0
        for name, _ in program.transfers(ring):
            found[name] += (row,)
            row += program.products[name].tiling.rows
    return found


def starting(program: p.Program) -> dict[Path, Starts]:
    """By the path of each `Start`, what it starts."""
    sizes = {ring: _sizes(program, ring) for ring in program.rings}
    found: dict[Path, Starts] = {}
    for at in executed(program):
        if isinstance(op := at.op, p.Start):
            made = found.setdefault(at.path, Starts(len(found), tuple(Counter() for _ in range(op.count))))
            for count in made.counts:
                count[next(sizes[op.ring])] += 1
    return found


def _sizes(program: p.Program, ring: p.RingRef) -> Iterator[int]:
    for name, _ in program.transfers(ring):
        yield from program.products[name].tiling.transfers
    while True:
        yield IDLE
