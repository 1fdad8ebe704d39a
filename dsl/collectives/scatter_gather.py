"""A sum: each core adds up its part of the columns, then all are gathered."""

from __future__ import annotations

from ..records import frozen
from ..targets.lanes import padded
from .collective import BufferNeed, CollectiveKind, Exchanged, Operation, Round


@frozen
class ScatterGather(CollectiveKind):
    """A sum: each core adds up its part of the columns, then all are gathered."""

    name: str = "scatter_gather"
    operation: Operation = Operation.SUM
    by: str = "scatter_gather"
    completes_columns: bool = True

    def buffers(self, given: Exchanged) -> tuple[BufferNeed, ...]:
        """Each core's part of this core's value, all cores' shares of this core's part, and all parts' sums."""
        chunk = _chunk(given)
        return (
            BufferNeed("outgoing", (given.cores, *chunk), given.wire),
            BufferNeed("partials", (2, given.cores, *chunk), given.wire),
            BufferNeed("sums", (2, given.cores, *chunk), given.wire),
        )

    def rounds(self, given: Exchanged) -> tuple[Round, ...]:
        """Shares to their cores, sums to all."""
        return (Round(given.cores - 1, given.bytes(_chunk(given))),) * 2

    def slots(self, cores: int) -> int:
        """Its parts are a value each time."""
        return 2


def _chunk(given: Exchanged) -> tuple[int, int]:
    return (given.rows, padded(-(-given.width // given.cores)))


SCATTER_GATHER = ScatterGather()
