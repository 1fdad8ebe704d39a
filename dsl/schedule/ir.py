"""The Schedule: how a model's weights move on one kind of machine, and what overlaps."""

from __future__ import annotations

from ..collectives.collective import CollectiveKind, Wire
from ..model import ir as m
from ..records import frozen
from ..source import Span
from ..targets.target import Target


@frozen(repr=False)
class Shard:
    """A size shared out over mesh axes; `repeat`: fewer than cores, so that some cores hold the same."""

    size: str
    axes: tuple[str, ...]
    repeat: bool
    span: Span


@frozen(repr=False)
class Split:
    """One product's rows shared out; its value is gathered where it is named."""

    weight: str
    axes: tuple[str, ...]
    span: Span


@frozen(repr=False)
class Group:
    """Weights fused into one product, as they are streamed; names are qualified."""

    weights: tuple[str, ...]
    span: Span


@frozen(repr=False)
class Stream:
    """A ring of `slots` buffers of at most `slot` bytes; `lines` gives each part's groups in order."""

    name: str
    slots: int
    slot: int
    lines: tuple[tuple[str, tuple[Group, ...]], ...]
    span: Span
    slots_span: Span
    slot_span: Span


@frozen(repr=False)
class Fetch:
    """Weights chosen at run time: the experts of a part."""

    part: str
    slots: int
    span: Span


@frozen(repr=False)
class Point:
    """`relation` is `at`, `before`, `after` or `previous`; `what` is `P.start`, `P.value`, `part` or `layer`."""

    relation: str
    what: str
    span: Span


@frozen(repr=False)
class Prefetch:
    """`kind` is `weight`, `state`, `cache` or `vectors`; `what` a weight's name or a part's."""

    kind: str
    what: str
    points: tuple[Point, ...]
    tile: int | None
    slots: int | None
    span: Span


@frozen(repr=False)
class Gather:
    """Values sent in one message."""

    values: tuple[str, ...]
    span: Span


@frozen(repr=False)
class Reduce:
    """How a partial sum is completed, and in which type it travels."""

    value: str
    by: CollectiveKind
    wire: Wire
    span: Span


@frozen(repr=False)
class Overlap:
    """Products inside the wait of a collective."""

    verb: str
    values: tuple[str, ...]
    groups: tuple[Group, ...]
    span: Span


@frozen(repr=False)
class Form:
    """`mla.cache = expanded`: an evaluation that is equal in exact arithmetic."""

    part: str
    value: str
    span: Span


@frozen(repr=False)
class Store:
    """Experts' `mxfp4` kept as `fp8` in blocks: e4m3 numbers, and a power of two for each output and block."""

    weight: str
    codec: m.Codec
    span: Span


@frozen
class Pass:
    """What one call does: a token of each of so many sequences; or, `consecutive`, so many tokens of one."""

    tokens: int
    consecutive: bool = False

    @property
    def sequences(self) -> int:
        """Of how many sequences it has tokens."""
        return 1 if self.consecutive else self.tokens

    @property
    def words(self) -> str:
        """`1 row`, `8 rows`, `8 tokens of one sequence`."""
        if self.consecutive:
            return f"{self.tokens} token{'s' * (self.tokens > 1)} of one sequence"
        return f"{self.tokens} row{'s' * (self.tokens > 1)}"

    def __str__(self) -> str:
        return f"{'span' if self.consecutive else 'rows'} = {self.tokens}"


@frozen(repr=False)
class Schedule:
    """A resolved schedule; `cores` is the number of devices and the product of the mesh."""

    name: str
    model: m.Model
    target: Target
    topology: tuple[int, ...]
    rows: tuple[int, ...]
    spans: tuple[int, ...]
    keep_rows: bool
    context: int
    mesh: tuple[tuple[str, int], ...]
    shards: dict[str, Shard]
    splits: dict[str, Split]
    streams: tuple[Stream, ...]
    fetches: tuple[Fetch, ...]
    prefetches: tuple[Prefetch, ...]
    gathers: tuple[Gather, ...]
    reduces: tuple[Reduce, ...]
    overlaps: tuple[Overlap, ...]
    forms: tuple[Form, ...]
    stores: tuple[Store, ...]
    span: Span

    @property
    def cores(self) -> int:
        """How many cores take part."""
        return self.target.devices(self.topology)

    @property
    def passes(self) -> tuple[Pass, ...]:
        """All that it allows: rows, then spans, in the text's order. A span of one token is a step of one row."""
        return (*(Pass(n) for n in self.rows), *(Pass(n, consecutive=True) for n in self.spans if n > 1))

    @property
    def axes(self) -> dict[str, int]:
        """The mesh axes' lengths by name; without a mesh there is one, of one core."""
        return dict(self.mesh) or {"core": 1}

    @property
    def over_all(self) -> tuple[str, ...]:
        """The mesh axes that tell cores apart, in the mesh's order: those of one core alone do not."""
        return tuple(name for name, size in self.mesh if size > 1) or tuple(name for name, _ in self.mesh)

    def paired(self, axes: tuple[str, ...]) -> bool:
        """Whether cores along these mesh axes come in pairs of neighbours: on a chip of two cores, both of them."""
        last = self.over_all[-1:]
        return last == axes[-1:] and self.ways(last) % 2 == 0

    @property
    def over_positions(self) -> tuple[str, ...]:
        """The mesh axes over which caches are shared out by positions, in the mesh's order."""
        shard = self.shards.get("position")
        return tuple(name for name, size in self.mesh if shard is not None and name in shard.axes and size > 1)

    def ways(self, axes: tuple[str, ...]) -> int:
        """Into how many shares these mesh axes cut."""
        lengths, total = dict(self.mesh), 1
        for axis in axes:
            total *= lengths[axis]
        return total


def bare(model: m.Model, target: Target, context: int) -> Schedule:
    """One row on the smallest topology, every weight whole on each core and loaded just before its use."""
    one = (1,) * target.topology_rank
    return Schedule(
        "unsharded",
        model,
        target,
        one,
        (1,),
        (1,),
        False,
        context,
        (),
        {},
        {},
        (),
        (),
        (),
        (),
        (),
        (),
        (),
        (),
        model.span,
    )


@frozen(repr=False)
class Speculation:
    """A target and a drafter, each on its schedule; `drafts` tokens are verified after the anchor."""

    name: str
    target: Schedule
    drafter: Schedule
    drafts: int
    accept: str
    span: Span
