"""The ops of a Program: whatever moves has a start and a wait."""

from __future__ import annotations

from attrs import field

from ...model import ir as m
from ...records import frozen
from ...source import Span


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
class CopyStart:
    """The copy for the next layer (`ahead`) or this one sets out; nothing where that layer does not run its part."""

    copy: str
    ahead: bool


@frozen
class CopyWait:
    """It has arrived."""

    copy: str


@frozen
class StoreStart:
    """This layer's entry of a state's copy sets out to HBM."""

    copy: str


@frozen
class StoreWait:
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
    `entries`; `result`. Where positions are sharded, the heads are those of all cores that have some, and the result
    is their softmaxes over this core's positions, `[rows, heads, n + 128]`, which an exchange merges.
    """

    ring: str
    call: m.Call
    queries: tuple[str, ...]
    entries: tuple[str, ...]
    result: str


@frozen
class AttendBlock:
    """The rows of a block over a layer's caches, as `Attend`, and over each other.

    `entries` are the block's own keys and values, `[rows, heads, width]`, which no cache gets. `earlier` are what an
    earlier phase gave the caches, `[layers, rows, heads, width]`, each layer's: no tile has it yet.
    """

    ring: str
    call: m.Call
    queries: tuple[str, ...]
    entries: tuple[str, ...]
    earlier: tuple[str, ...]
    result: str


@frozen
class RopeTables:
    """What rotary embeddings of `channels` channels turn by at the rows' positions, once a step."""

    cos: str
    sin: str
    channels: int
    call: m.Call


@frozen
class Put:
    """`node` into an element of a buffer that lasts through the layers, `[elements, rows, n]`; guarded."""

    buffer: str
    index: m.Static
    node: m.Node
    guard: m.Static | None
    span: Span = field(repr=False, eq=False)


@frozen
class Keep:
    """`node` into the layer's element of a buffer that lasts to the end, `[layers, rows, …]`: a cache's entries."""

    buffer: str
    node: m.Node
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
class Argmax:
    """The ids with the largest logits, the lowest on ties; `share` of them lie on one core."""

    logits: str
    share: int
    exchange: str | None


@frozen
class ArgmaxValue:
    """The ids of the largest numbers in a buffer, the lowest on ties, into another; `call` is the definition's."""

    value: str
    call: m.Call
    exchange: str | None
    result: str


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
    carried: tuple[tuple[str, str], ...]
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
