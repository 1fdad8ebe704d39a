"""A sum: all to all."""

from __future__ import annotations

from ..records import frozen
from .collective import BufferNeed, CollectiveKind, Exchanged, Operation, Round, slot


@frozen
class Direct(CollectiveKind):
    """A sum: all to all."""

    name: str = "direct"
    operation: Operation = Operation.SUM
    by: str = "direct"

    def buffers(self, given: Exchanged) -> tuple[BufferNeed, ...]:
        """A slot for each core's value."""
        return (BufferNeed("slots", (2, given.cores, *slot(given)), given.wire),)

    def rounds(self, given: Exchanged) -> tuple[Round, ...]:
        """One."""
        return (Round(given.cores - 1, given.bytes(slot(given))),)


DIRECT = Direct()
