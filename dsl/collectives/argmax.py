"""The largest of one value a core and row, and its id; both travel as 32-bit integers, over all lanes."""

from __future__ import annotations

from attrs import evolve

from ..records import frozen
from ..targets.lanes import LANES
from .collective import BufferNeed, CollectiveKind, CollectivePlan, Exchanged, Operation, Round, Wire


@frozen
class Argmax(CollectiveKind):
    """All to all: every core's largest value and its id."""

    name: str = "argmax"
    operation: Operation = Operation.ARGMAX
    by: str = "direct"
    wires: tuple[Wire, ...] = (Wire.INT32,)

    def buffers(self, given: Exchanged) -> tuple[BufferNeed, ...]:
        """A slot for each core's value and id."""
        return (BufferNeed("slots", (2, given.cores, 2, given.rows, LANES), given.wire),)

    def rounds(self, given: Exchanged) -> tuple[Round, ...]:
        """One."""
        return (Round(given.cores - 1, given.bytes((2, given.rows, LANES))),)

    def plan(self, given: Exchanged) -> CollectivePlan:
        """One value of each row, whatever it was found among."""
        return super().plan(evolve(given, width=1))


ARGMAX = Argmax()
