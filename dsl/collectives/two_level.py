"""A sum: halves between the two cores of a chip, then between chips, then back."""

from __future__ import annotations

from ..records import frozen
from ..targets.lanes import padded
from .collective import BufferNeed, CollectiveKind, Exchanged, Operation, Round


@frozen
class TwoLevel(CollectiveKind):
    """A sum: halves between the two cores of a chip, then between chips, then back."""

    name: str = "two_level"
    operation: Operation = Operation.SUM
    by: str = "two_level"

    def buffers(self, given: Exchanged) -> tuple[BufferNeed, ...]:
        """Both halves of this core's value, the sibling's share of its half, all chips' sums of it, and both sums."""
        half = _half(given)
        return (
            BufferNeed("outgoing", (2, *half), given.wire),
            BufferNeed("sibling", (2, *half), given.wire),
            BufferNeed("chips", (2, given.cores // 2, *half), given.wire),
            BufferNeed("halves", (2, 2, *half), given.wire),
        )

    def rounds(self, given: Exchanged) -> tuple[Round, ...]:
        """To the sibling, to the other chips, to the sibling."""
        size = given.bytes(_half(given))
        return (Round(1, size, True), Round(given.cores // 2 - 1, size), Round(1, size, True))

    def unfit(self, cores: int, paired: bool) -> str | None:
        """A level is two cores of a chip."""
        if cores % 2:
            return f"needs cores in pairs; there are {cores}"
        return None if paired else "needs neighbours in pairs along the mesh's last axis"

    def slots(self, cores: int) -> int:
        """Its halves are a value each time."""
        return 2


def _half(given: Exchanged) -> tuple[int, int]:
    return (given.rows, padded(-(-given.width // 2)))


TWO_LEVEL = TwoLevel()
