"""The Program: what every core does in one step. Whatever moves has a start and a wait, whatever lasts a buffer.

All cores run the same Program on their shares; shapes are those of one core, with `rows` sequences decoded together.
"""

from __future__ import annotations

from attrs import field

from ..model import ir as m
from ..model.facts import STEP
from ..model.instance import Instance
from ..records import frozen
from ..schedule.ir import Pass, Schedule
from ..schedule.shares import Shares
from ..source import Span
from .things import Array, Bank, Buffer, CacheRing, Copy, Exchange, Expanded, Piece, Product, Ring, View

__all__ = [
    "Array",
    "Attend",
    "Bank",
    "Barrier",
    "Buffer",
    "CacheRing",
    "Choice",
    "Compute",
    "Copy",
    "Dot",
    "Emit",
    "Exchange",
    "Expanded",
    "ExpertDot",
    "Experts",
    "Fetch",
    "Greedy",
    "Layers",
    "Load",
    "Loaded",
    "Lookup",
    "Op",
    "Piece",
    "Product",
    "Program",
    "Put",
    "Receive",
    "Repeat",
    "Ring",
    "Route",
    "Save",
    "Saved",
    "Send",
    "Start",
    "StartTiles",
    "Turns",
    "View",
    "Wait",
    "turns_key",
]


@frozen
class Barrier:
    """All cores have entered the call: from here on they may be sent to."""


@frozen
class Start:
    """The next `count` transfers of a ring's tape set out, each into the slot after the last."""

    ring: str
    count: int


@frozen
class Wait:
    """The ring's next transfers, of so many tape rows each, have arrived."""

    ring: str
    rows: tuple[int, ...]


@frozen
class Dot:
    """The operand times the tiles that just arrived, into the result; `run` counts the tiling's runs."""

    product: str
    run: int


@frozen
class Load:
    """The copy for the next layer (`ahead`) or this one sets out; nothing where that layer does not run its part."""

    copy: str
    ahead: bool


@frozen
class Loaded:
    """It has arrived."""

    copy: str


@frozen
class Save:
    """This layer's entry of a state's copy sets out to HBM."""

    copy: str


@frozen
class Saved:
    """What an earlier layer saved from the slot that is loaded next has left it; with `all_` every slot."""

    copy: str
    ahead: bool
    all_: bool = False


@frozen
class Lookup:
    """Each row's entry of a table in HBM comes into a buffer; one core's share has `share` entries."""

    table: str
    index: m.Node
    buffer: str
    share: int | None


@frozen
class Compute:
    """`node` is evaluated and rounded into buffers; with a false guard they stay as they were."""

    outputs: tuple[str, ...]
    node: m.Node
    guard: m.Static | None
    span: Span = field(repr=False, eq=False)


@frozen
class Send:
    """An exchange's first messages set out."""

    exchange: str


@frozen
class Receive:
    """An exchange is complete."""

    exchange: str


@frozen
class StartTiles:
    """The first tiles of a layer's caches set out, as many as there are slots."""

    ring: str


@frozen
class Attend:
    """Over the tiles of a layer's caches: wait for each, take it into the running softmax, start the next.

    Buffers: `queries` `[rows, heads, width]`, one or, of latent attention, one for each cache; the rows' own
    `entries`; `result`. Where positions are shared out, the heads are those of all cores that have some, and the result
    is their softmaxes over this core's positions, `[rows, heads, n + 128]`, which an exchange merges.
    """

    ring: str
    call: m.Call
    queries: tuple[str, ...]
    entries: tuple[str, ...]
    result: str


@frozen
class Turns:
    """What rotary embeddings of `channels` channels turn by at the rows' positions, once a step."""

    cos: str
    sin: str
    channels: int
    call: m.Call


def turns_key(call: m.Call, channels: int, instance: Instance) -> str:
    """What two rotary embeddings that turn alike have in common."""
    said = [f"{name} {float(instance.number(static)):g}" for name, static in sorted(call.options, key=lambda o: o[0])]
    return ", ".join([f"{channels} channels", *said])


@frozen
class Put:
    """`node` into an element of a buffer that lasts through the layers, `[elements, rows, n]`; guarded."""

    buffer: str
    index: m.Static
    node: m.Node
    guard: m.Static | None
    span: Span = field(repr=False, eq=False)


@frozen
class Route:
    """The weights of all experts for each row, and the list of this core's that any row chose, by ascending number.

    `scores` is a buffer `[rows, experts]`, `weights` another.
    """

    scores: str
    call: m.Call
    weights: str
    bank: str


@frozen
class Fetch:
    """Of the chosen experts, those of the numbers `first .. stop` set out, each into the slot of its number."""

    bank: str
    first: int
    stop: int


@frozen
class ExpertDot:
    """One of an expert's products, with the matrix that lies in the slot at hand."""

    bank: str
    product: int
    operand: str
    result: str


@frozen
class Experts:
    """For each chosen expert: wait for it, evaluate `body`, add `value` by the rows' weights, fetch the next."""

    bank: str
    body: tuple[Op, ...]
    value: str
    result: str


@frozen
class Emit:
    """A buffer leaves for an output in HBM."""

    buffer: str
    output: str


@frozen
class Greedy:
    """The ids with the largest logits, the lowest on ties; `share` of them lie on one core."""

    logits: str
    share: int
    exchange: str | None


@frozen
class Repeat:
    """`body` so many times."""

    variable: str
    count: int
    body: tuple[Op, ...]


@frozen
class Choice:
    """A place in the layer where one of several parts runs, or none; which, the layer table says."""

    position: int
    bodies: tuple[tuple[str, tuple[Op, ...]], ...]


@frozen
class Layers:
    """`start .. stop`, each layer's choices in order."""

    start: int
    stop: int
    choices: tuple[Choice, ...]


type Op = (
    Start | Wait | Dot | Load | Loaded | Save | Saved | Lookup | Compute | Send | Receive | StartTiles | Attend | Emit
    | Greedy | Repeat | Choice | Layers | Barrier | Turns | Put | Route | Fetch | ExpertDot | Experts
)  # fmt: skip


def _is_small(value: float) -> bool:
    return value.is_integer() and abs(value) < 1 << 24  # as exact in f32


@frozen(repr=False)
class Program:
    """Everything that the checks, the printer and the backends walk over.

    With `consecutive` the rows are tokens of one sequence: a state's buffer begins with what it was before the first,
    and caches have room for one sequence. `scalars` are the numbers of the model that depend on the layer, with their
    values by layer.
    """

    schedule: Schedule
    instance: Instance
    shares: Shares
    rows: int
    consecutive: bool
    buffers: dict[str, Buffer]
    views: dict[str, View]
    rings: dict[str, Ring]
    products: dict[str, Product]
    copies: dict[str, Copy]
    caches: dict[str, CacheRing]
    banks: dict[str, Bank]
    exchanges: dict[str, Exchange]
    turns: dict[str, Turns]
    scalars: dict[m.Static, tuple[float, ...]]
    arrays: dict[str, Array]
    outputs: dict[str, Array]
    body: tuple[Op, ...]

    @property
    def whole_scalars(self) -> tuple[m.Static, ...]:
        """Those of `scalars` that are small whole numbers in every layer: counts, indices, conditions."""
        return tuple(static for static, values in self.scalars.items() if all(map(_is_small, values)))

    @property
    def real_scalars(self) -> tuple[m.Static, ...]:
        """The others."""
        whole = self.whole_scalars
        return tuple(static for static in self.scalars if static not in whole)

    @property
    def of(self) -> Pass:
        """The pass that it makes."""
        return Pass(self.rows, self.consecutive)

    @property
    def layer_parts(self) -> dict[int, tuple[str, ...]]:
        """For each layer, its parts in order."""
        return self.instance.layer_parts("")

    def layers_of(self, part: str) -> tuple[int, ...]:
        """The layers that run a part."""
        return self.instance.layers_of(part)

    def times(self, place: str | None) -> int:
        """How often a step runs a place: a part once for each of its layers, what belongs to the step itself once."""
        return 1 if place in (None, "", STEP) else len(self.layers_of(place))

    def always(self, choice: Choice) -> bool:
        """Whether every layer runs one of a choice's parts."""
        names = {name for name, _ in choice.bodies}
        return all(names & set(parts) for parts in self.layer_parts.values())

    def unconditional(self, choice: Choice) -> bool:
        """Whether there is nothing to choose: one part, which every layer runs."""
        return len(choice.bodies) == 1 and self.always(choice)

    def transfers(self, ring: str) -> list[tuple[str, int | None]]:
        """The products whose matrices pass through a ring, with their layers, in the order of use."""
        loop = self.instance.layer_loop.get("")
        by_place: dict[str, list[str]] = {}
        for product in self.products.values():
            if product.ring == ring:
                by_place.setdefault(product.place, []).append(product.name)
        found: list[tuple[str, int | None]] = []
        if loop is not None:
            for layer, parts in self.layer_parts.items():
                found += [(name, layer) for part in parts for name in by_place.get(part, ())]
        return found + [(name, None) for name in by_place.get(STEP, ())]
