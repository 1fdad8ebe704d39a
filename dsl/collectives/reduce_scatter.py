"""A sum of which each core keeps its columns, whole lanes of them."""

from __future__ import annotations

from ..records import frozen
from ..targets.lanes import padded
from .collective import BufferNeed, CollectiveKind, Exchanged, Operation, Round


@frozen
class ReduceScatter(CollectiveKind):
    """A sum of which each core keeps its columns; what goes to every core comes after its own."""

    name: str = "reduce_scatter"
    operation: Operation = Operation.REDUCE_SCATTER
    by: str = "scatter"

    def buffers(self, given: Exchanged) -> tuple[BufferNeed, ...]:
        """Each core's columns of this core's value, and all cores' shares of its own."""
        return home(given, _chunk(given))

    def rounds(self, given: Exchanged) -> tuple[Round, ...]:
        """Shares to their cores."""
        return (Round(given.cores - 1, given.bytes(_chunk(given))),)

    def slots(self, cores: int) -> int:
        """Its parts are a value."""
        return 2


def home(given: Exchanged, share: tuple[int, ...]) -> tuple[BufferNeed, ...]:
    """Where each core sends every other its share, which that one alone completes."""
    return (
        BufferNeed("outgoing", (given.cores, *share), given.wire),
        BufferNeed("partials", (2, given.cores, *share), given.wire),
    )


def _chunk(given: Exchanged) -> tuple[int, int]:
    return (given.rows, padded(-(-(given.width - given.beside) // given.cores)) + given.beside)


REDUCE_SCATTER = ReduceScatter()
