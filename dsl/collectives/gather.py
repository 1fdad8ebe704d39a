"""All cores' columns side by side, `[rows, cores * width]`, in the order of ranks."""

from __future__ import annotations

from ..records import frozen
from .collective import BufferNeed, CollectiveKind, Exchanged, Operation, Round, slot


@frozen
class Gather(CollectiveKind):
    """All to all: every core's value on every core."""

    name: str = "gather"
    operation: Operation = Operation.GATHER
    by: str = "direct"

    def buffers(self, given: Exchanged) -> tuple[BufferNeed, ...]:
        """A slot for each core's value."""
        return (BufferNeed("slots", (2, given.cores, *slot(given)), given.wire),)

    def rounds(self, given: Exchanged) -> tuple[Round, ...]:
        """One."""
        return (Round(given.cores - 1, given.bytes(slot(given))),)


GATHER = Gather()
