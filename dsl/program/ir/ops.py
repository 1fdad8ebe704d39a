"""The ops of a Program: whatever moves has a start and a wait."""

from __future__ import annotations

from attrs import field

from ...model import ir as m
from ...records import frozen
from ...source import Span
from .array_refs import ArrayRef, EntryRef, TableRef
from .refs import BufferRef, CacheRingRef, CollectiveRef, ExpertPoolRef, ModelBufferRef, ProductRef, RingRef, ValueRef


@frozen
class Barrier:
    """All cores have entered the call: from here on they may be sent to."""


@frozen
class Start:
    """The next `count` transfers of a ring's tape set out, each into the slot after the last."""

    ring: RingRef
    count: int


@frozen
class Wait:
    """The ring's next transfers, of so many tape rows each, have arrived."""

    ring: RingRef
    rows: tuple[int, ...]


@frozen
class Dot:
    """The operand times the tiles that just arrived, into the result; `run` counts the tiling's runs."""

    product: ProductRef
    run: int


@frozen
class CopyStart:
    """The copy for the next layer (`ahead`) or this one sets out; nothing where that layer does not run its part."""

    copy: ArrayRef
    ahead: bool


@frozen
class CopyWait:
    """It has arrived."""

    copy: ArrayRef


@frozen
class StoreStart:
    """This layer's entry of a state's copy sets out to HBM."""

    copy: ArrayRef


@frozen
class StoreWait:
    """What an earlier layer saved from the slot that is loaded next has left it; with `all_` every slot."""

    copy: ArrayRef
    ahead: bool
    all_: bool = False


@frozen
class Lookup:
    """Each row's entry of a table in HBM comes into a buffer; one core's share has `share` entries."""

    table: TableRef
    index: m.Node
    buffer: BufferRef
    share: int | None


@frozen
class Compute:
    """`node` is evaluated and rounded into buffers; with a false guard they stay as they were."""

    outputs: tuple[BufferRef, ...]
    node: m.Node
    guard: m.Static | None
    span: Span = field(repr=False, eq=False)


@frozen
class Send:
    """An exchange's first messages set out."""

    exchange: CollectiveRef


@frozen
class Receive:
    """An exchange is complete."""

    exchange: CollectiveRef


@frozen
class StartTiles:
    """The first tiles of a layer's caches set out, as many as there are slots."""

    ring: CacheRingRef


@frozen
class Attend:
    """Over the tiles of a layer's caches: wait for each, take it into the running softmax, start the next.

    Buffers: `queries` `[rows, heads, width]`, one or, of latent attention, one for each cache; the rows' own
    `entries`; `result`. Where positions are sharded, the heads are those of all cores that have some, and the result
    is their softmaxes over this core's positions, `[rows, heads, n + 128]`, which an exchange merges.
    """

    ring: CacheRingRef
    call: m.Call
    queries: tuple[BufferRef, ...]
    entries: tuple[EntryRef, ...]
    result: BufferRef


@frozen
class AttendBlock:
    """The rows of a block over a layer's caches, as `Attend`, and over each other.

    `entries` are the block's own keys and values, `[rows, heads, width]`, which no cache gets. `earlier` are what an
    earlier phase gave the caches, `[layers, rows, heads, width]`, each layer's: no tile has it yet.
    """

    ring: CacheRingRef
    call: m.Call
    queries: tuple[BufferRef, ...]
    entries: tuple[BufferRef, ...]
    earlier: tuple[EntryRef, ...]
    result: BufferRef


@frozen
class RopeTables:
    """What rotary embeddings of `channels` channels turn by at the rows' positions, once a step."""

    cos: BufferRef
    sin: BufferRef
    channels: int
    call: m.Call


@frozen
class Put:
    """`node` into an element of a buffer that lasts through the layers, `[elements, rows, n]`; guarded."""

    buffer: ModelBufferRef
    index: m.Static
    node: m.Node
    guard: m.Static | None
    span: Span = field(repr=False, eq=False)


@frozen
class Keep:
    """`node` into the layer's element of a buffer that lasts to the end, `[layers, rows, …]`: a cache's entries."""

    buffer: EntryRef
    node: m.Node
    span: Span = field(repr=False, eq=False)


@frozen
class Route:
    """The weights of all experts for each row, and the list of this core's that any row chose, by ascending number.

    `scores` is a buffer `[rows, experts]`, `weights` another.
    """

    scores: BufferRef
    call: m.Call
    weights: ValueRef
    bank: ExpertPoolRef


@frozen
class Fetch:
    """Of the chosen experts, those of the numbers `first .. stop` set out, each into the slot of its number."""

    bank: ExpertPoolRef
    first: int
    stop: int


@frozen
class ExpertDot:
    """One of an expert's products, with the matrix that lies in the slot at hand."""

    bank: ExpertPoolRef
    product: int
    operand: BufferRef
    result: BufferRef


@frozen
class Experts:
    """For each chosen expert: wait for it, evaluate `body`, add `value` by the rows' weights, fetch the next."""

    bank: ExpertPoolRef
    body: tuple[Op, ...]
    value: BufferRef
    result: BufferRef


@frozen
class Emit:
    """A buffer leaves for an output in HBM."""

    buffer: BufferRef
    output: ArrayRef


@frozen
class Argmax:
    """The ids with the largest logits, the lowest on ties; `share` of them lie on one core."""

    logits: ValueRef
    share: int
    exchange: CollectiveRef | None


@frozen
class ArgmaxValue:
    """The ids of the largest numbers in a buffer, the lowest on ties, into another; `call` is the definition's."""

    value: BufferRef
    call: m.Call
    exchange: CollectiveRef | None
    result: BufferRef


@frozen
class Repeat:
    """`body` so many times."""

    variable: str
    count: int
    body: tuple[Op, ...]


@frozen
class RowLoop:
    """`body` for each of the rows `start .. stop` of a block in turn; its ops belong to `place`, and have one row.

    A value of all rows stands there for the row at hand, and is written in that row. Of each pair in `carried` the
    second buffer, of one row, begins as the first row of the first, and goes from row to row.
    """

    place: str
    start: int
    stop: int
    carried: tuple[tuple[ValueRef, ValueRef], ...]
    body: tuple[Op, ...]


@frozen
class LayerSwitch:
    """A place in the layer where one of several parts runs, or none; which, the layer table says."""

    position: int
    bodies: tuple[tuple[str, tuple[Op, ...]], ...]


@frozen
class LayerLoop:
    """`start .. stop`, each layer's choices in order."""

    start: int
    stop: int
    choices: tuple[LayerSwitch, ...]


type Op = (
    Start
    | Wait
    | Dot
    | CopyStart
    | CopyWait
    | StoreStart
    | StoreWait
    | Lookup
    | Compute
    | Send
    | Receive
    | StartTiles
    | Attend
    | AttendBlock
    | Emit
    | Argmax
    | ArgmaxValue
    | Repeat
    | RowLoop
    | LayerSwitch
    | LayerLoop
    | Barrier
    | RopeTables
    | Put
    | Keep
    | Route
    | Fetch
    | ExpertDot
    | Experts
)
