"""A kind of collective, and its plan: buffers, semaphores, serial rounds and bytes, by shape alone.

The Pallas backend takes references of exactly these shapes, so a bill or a Program that lists them lists what the
kernel holds. Last axes are padded to whole lanes; rows are not padded here.
"""

from __future__ import annotations

from enum import StrEnum
from math import prod

from ..records import frozen
from ..targets.lanes import padded
from ..targets.targets import BYTES


class Operation(StrEnum):
    """What a collective makes of what each core gives.

    `SUM` is whole on every core; of a `REDUCE_SCATTER` each core keeps its columns. A `GATHER` is of all cores' columns
    in the order of ranks. A `SOFTMAX_MERGE` completes each core's heads of softmaxes over parts of the positions, and
    `ARGMAX` is the largest of one value a core, and its id.
    """

    SUM = "sum"
    REDUCE_SCATTER = "reduce_scatter"
    GATHER = "gather"
    SOFTMAX_MERGE = "softmax_merge"
    ARGMAX = "argmax"


class Wire(StrEnum):
    """The type in which numbers travel."""

    F32 = "f32"
    BF16 = "bf16"
    INT32 = "int32"


@frozen
class BufferNeed:
    """A buffer in VMEM that one collective holds for itself; `dtype` is `f32`, `bf16` or `int32`."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@frozen
class Round:
    """Messages that leave together; a core waits for its own before the next round.

    `peers` messages of `message` bytes leave each core; `sibling`: they go to the neighbour, `rank ^ 1`, only.
    """

    peers: int
    message: int
    sibling: bool = False


@frozen
class Exchanged:
    """What `cores` cores have: `[rows, width]` each, which travels as `wire`.

    Of what is scattered, the last `beside` columns, whole lanes of them, go to every core.
    """

    cores: int
    rows: int
    width: int
    wire: Wire
    beside: int = 0

    def bytes(self, shape: tuple[int, ...]) -> int:
        """Of a message of a shape."""
        return prod(shape) * BYTES[self.wire]


@frozen
class CollectivePlan:
    """A collective of one kind on what cores have. `semaphores`: round, sending or receiving, parity."""

    kind: CollectiveKind
    exchanged: Exchanged
    buffers: tuple[BufferNeed, ...]
    rounds: tuple[Round, ...]

    @property
    def cores(self) -> int:
        """How many take part."""
        return self.exchanged.cores

    @property
    def rows(self) -> int:
        """Of each core's value."""
        return self.exchanged.rows

    @property
    def width(self) -> int:
        """Columns of each core's value."""
        return self.exchanged.width

    @property
    def beside(self) -> int:
        """Columns that go to every core where the others are scattered."""
        return self.exchanged.beside

    @property
    def semaphores(self) -> tuple[int, int, int]:
        """Rounds, sending and receiving, parities."""
        return (len(self.rounds), 2, 2)

    @property
    def serial(self) -> int:
        """Rounds in which something is sent, one after the other: each costs a latency."""
        return sum(each.peers > 0 for each in self.rounds)

    @property
    def sent(self) -> int:
        """Bytes that leave each core."""
        return sum(each.peers * each.message for each in self.rounds)


@frozen
class CollectiveKind:
    """How cores do an `operation`: whoever adds a kind writes a class with `buffers` and `rounds`.

    By `name` the code of its kernel is found. `by` is what schedules call it, if its operation is one that they choose
    how to do. `wires` are the types in which it can send.
    """

    name: str
    operation: Operation
    by: str
    wires: tuple[Wire, ...] = (Wire.F32, Wire.BF16)
    completes_columns: bool = False

    def __str__(self) -> str:
        return self.by

    def buffers(self, given: Exchanged) -> tuple[BufferNeed, ...]:
        """What a core holds, each but what it sends from in two parities: see `backends/pallas/collectives`."""
        raise NotImplementedError

    def rounds(self, given: Exchanged) -> tuple[Round, ...]:
        """What a core sends, one round after the other."""
        raise NotImplementedError

    def unfit(self, cores: int, paired: bool) -> str | None:
        """Why such cores cannot do it; `paired`: they are neighbours in pairs along the mesh's last axis."""
        return None

    def slots(self, cores: int) -> int:
        """Room for received values, in whole values and two parities: what `mks check` takes before lowering."""
        return cores

    def sends(self, plan: CollectivePlan) -> int:
        """Columns of what each core gives, all cores' shares together."""
        return plan.width

    def stored(self, plan: CollectivePlan) -> float:
        """Registers that are stored before the first message, for each of a core's value: an estimate."""
        return 1.0

    def combined(self, plan: CollectivePlan) -> float:
        """Registers that are added up or joined after each round, for each of a core's value: an estimate."""
        return 2 / max(1, len(plan.rounds))

    def plan(self, given: Exchanged) -> CollectivePlan:
        """What such a collective holds and sends.

        Raises:
            ValueError: there is nothing to exchange, or these cores cannot do it.
        """
        if given.cores < 2:
            raise ValueError("one core has nobody to exchange with")
        if given.rows < 1 or given.width - given.beside < 1:
            raise ValueError(f"[{given.rows}, {given.width - given.beside}] is empty")
        if given.wire not in self.wires:
            raise ValueError(f"nothing travels as {given.wire} in `{self.name}`")
        # Who are neighbours the mesh says, of which a shape knows nothing.
        if reason := self.unfit(given.cores, given.cores % 2 == 0):
            raise ValueError(f"`{self.name}` {reason}")
        return CollectivePlan(self, given, self.buffers(given), self.rounds(given))


def slot(given: Exchanged) -> tuple[int, int]:
    """A core's value as it lies in a message."""
    return (given.rows, padded(given.width))
