"""What cores send one another in a collective: its buffers, semaphores, serial phases and bytes, by shape alone.

The Pallas backend takes references of exactly these shapes, so a bill or a Program that lists them lists what the
kernel holds. Last axes are padded to whole lanes; rows are not padded here.
"""

from __future__ import annotations

from math import prod

from ...records import frozen
from ...targets.targets import BYTES
from .lanes import LANES, padded

REDUCES = ("direct", "scatter_gather", "two_level")


@frozen
class BufferNeed:
    """A buffer in VMEM that one collective holds for itself; `dtype` is `f32`, `bf16` or `int32`."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@frozen
class Phase:
    """Messages that leave together; a core waits for its own before the next phase.

    `peers` messages of `message` bytes leave each core; `sibling`: they go to the neighbour, `rank ^ 1`, only.
    """

    peers: int
    message: int
    sibling: bool = False


@frozen
class CollectivePlan:
    """A collective over `cores` cores, on `[rows, width]` of each: `all_reduce`, `all_gather`, `merge` or `argmax`.

    `semaphores` is the shape of its DMA semaphores: phase, sending or receiving, parity. Of a `scatter`, the last
    `beside` columns go to every core.
    """

    kind: str
    by: str
    cores: int
    rows: int
    width: int
    wire: str
    buffers: tuple[BufferNeed, ...]
    phases: tuple[Phase, ...]
    beside: int = 0

    @property
    def semaphores(self) -> tuple[int, int, int]:
        """Phases, sending and receiving, parities."""
        return (len(self.phases), 2, 2)

    @property
    def serial(self) -> int:
        """Phases in which something is sent, one after the other: each costs a latency."""
        return sum(phase.peers > 0 for phase in self.phases)

    @property
    def sent(self) -> int:
        """Bytes that leave each core."""
        return sum(phase.peers * phase.message for phase in self.phases)


def all_reduce(by: str, cores: int, rows: int, width: int, wire: str) -> CollectivePlan:
    """The sum of all cores' f32 `[rows, width]`, on all of them; `wire` is the type that travels, `f32` or `bf16`.

    `direct` sends all to all. `scatter_gather` sums `1/cores` of the columns on each core, then gathers.
    `two_level` shares the columns between the two cores of a chip, exchanges a half between chips, then gathers.

    Raises:
        ValueError: there is nothing to exchange, or `two_level` over an odd number of cores.
    """
    _check(cores, rows, width, wire)
    buffers: tuple[BufferNeed, ...]
    phases: tuple[Phase, ...]
    if by == "direct":
        slot = (rows, padded(width))
        buffers = (BufferNeed("slots", (2, cores, *slot), wire),)
        phases = (Phase(cores - 1, _size(slot, wire)),)
    elif by == "scatter_gather":
        chunk = (rows, padded(-(-width // cores)))
        buffers = (
            BufferNeed("outgoing", (cores, *chunk), wire),
            BufferNeed("partials", (2, cores, *chunk), wire),
            BufferNeed("sums", (2, cores, *chunk), wire),
        )
        phases = (Phase(cores - 1, _size(chunk, wire)),) * 2
    elif by == "two_level":
        if cores % 2:
            raise ValueError(f"two_level needs cores in pairs; there are {cores}")
        half = (rows, padded(-(-width // 2)))
        buffers = (
            BufferNeed("outgoing", (2, *half), wire),
            BufferNeed("sibling", (2, *half), wire),
            BufferNeed("chips", (2, cores // 2, *half), wire),
            BufferNeed("halves", (2, 2, *half), wire),
        )
        size = _size(half, wire)
        phases = (Phase(1, size, True), Phase(cores // 2 - 1, size), Phase(1, size, True))
    else:
        raise ValueError(f"a sum is reduced {', '.join(REDUCES)}; not {by}")
    return CollectivePlan("all_reduce", by, cores, rows, width, wire, buffers, phases)


def scatter(cores: int, rows: int, width: int, wire: str, beside: int = 0) -> CollectivePlan:
    """The sum of all cores' f32 `[rows, width]`, of which each keeps its columns, whole lanes of them.

    The last `beside` columns, whole lanes too, come to every core, after its own.

    Raises:
        ValueError: there is nothing to exchange.
    """
    _check(cores, rows, width - beside, wire)
    chunk = (rows, padded(-(-(width - beside) // cores)) + beside)
    return CollectivePlan("all_reduce", "scatter", cores, rows, width, wire, *_home(cores, chunk, wire), beside)


def all_gather(cores: int, rows: int, width: int, wire: str) -> CollectivePlan:
    """`[rows, cores * width]` on all cores, of `[rows, width]` of each, in the order of ranks.

    Raises:
        ValueError: there is nothing to exchange.
    """
    _check(cores, rows, width, wire)
    slot = (rows, padded(width))
    buffers = (BufferNeed("slots", (2, cores, *slot), wire),)
    phases = (Phase(cores - 1, _size(slot, wire)),)
    return CollectivePlan("all_gather", "direct", cores, rows, width, wire, buffers, phases)


def merge(cores: int, rows: int, width: int) -> CollectivePlan:
    """Softmaxes over parts of the positions, of which each core completes its own heads: f32 `[rows, width]` of each.

    Raises:
        ValueError: there is nothing to exchange.
    """
    _check(cores, rows, width, "f32")
    return CollectivePlan("merge", "scatter", cores, rows, width, "f32", *_home(cores, (rows, padded(width)), "f32"))


def argmax(cores: int, rows: int) -> CollectivePlan:
    """The largest of one value a core and row, and its id; both travel as 32-bit integers, over all lanes.

    Raises:
        ValueError: there is nothing to exchange.
    """
    _check(cores, rows, 1, "int32")
    slot = (2, rows, LANES)
    buffers = (BufferNeed("slots", (2, cores, *slot), "int32"),)
    phases = (Phase(cores - 1, _size(slot, "int32")),)
    return CollectivePlan("argmax", "direct", cores, rows, 1, "int32", buffers, phases)


def _home(cores: int, share: tuple[int, ...], wire: str) -> tuple[tuple[BufferNeed, ...], tuple[Phase, ...]]:
    """Each core sends every other its share, which that one alone completes."""
    buffers = (BufferNeed("outgoing", (cores, *share), wire), BufferNeed("partials", (2, cores, *share), wire))
    return buffers, (Phase(cores - 1, _size(share, wire)),)


def _check(cores: int, rows: int, width: int, wire: str) -> None:
    if cores < 2:
        raise ValueError("one core has nobody to exchange with")
    if rows < 1 or width < 1:
        raise ValueError(f"[{rows}, {width}] is empty")
    if wire not in BYTES:
        raise ValueError(f"nothing travels as {wire}")


def _size(shape: tuple[int, ...], dtype: str) -> int:
    return prod(shape) * BYTES[dtype]
