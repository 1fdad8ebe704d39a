"""What a Program is about: rooms, tapes, products, caches, experts and exchanges; shapes are those of one core."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field

from ...collectives.collective import CollectiveKind, Wire
from ...model import ir as m
from ...records import frozen
from ...source import Span
from ..layout.expert_layout import ExpertLayout
from ..layout.tiling import Tiling
from .array_refs import ArrayRef, CacheRef, ExpertArrayRef, ModelCacheRef
from .refs import BufferRef, CacheRingRef, CollectiveRef, ExpertPoolRef, ProductRef, RingRef, ValueRef


@frozen
class Buffer:
    """Room in a core's fast memory. `place` is the part or step whose values it holds, `""` through the whole call."""

    name: BufferRef
    shape: tuple[int, ...]
    dtype: str
    place: str
    span: Span | None = field(default=None, repr=False, eq=False)


@frozen
class View:
    """Where a value of `shape` lies: from `start` on in each of a buffer's rows.

    A `transposed` matrix lies line by line of its last axis, each line from whole lanes on.
    """

    buffer: BufferRef
    start: int
    shape: tuple[int, ...]
    transposed: bool = False


@frozen
class Ring:
    """`slots` buffers of `rows` tape rows that a tape's transfers pass through in turn.

    A ring that is `ahead` is filled before the first use and kept full; the others start a transfer at its use.
    """

    name: RingRef
    slots: int
    rows: int
    ahead: bool
    span: Span | None = field(default=None, repr=False, eq=False)


@frozen
class Product:
    """Weights that multiply one operand, side by side: `widths` are their rows on one core, `tiling` that of all.

    `operand` and `result` are buffers, `[rows, inputs]` and f32 `[rows, outputs]`. With a `piece` (`absorb`, `expand`)
    it is one product for each head, with that piece of the weight, and both begin with an axis of heads.
    """

    name: ProductRef
    place: str
    weights: tuple[str, ...]
    widths: tuple[int, ...]
    dtype: str
    tiling: Tiling
    ring: RingRef
    operand: BufferRef
    result: BufferRef
    span: Span = field(repr=False, eq=False)
    piece: str = ""


@frozen
class Copy:
    """An array in HBM, one entry for each layer that runs `part`, and the buffer that holds `slots` of its entries."""

    name: ArrayRef
    part: str | None
    array: ArrayRef
    buffer: BufferRef
    slots: int


@frozen
class Expanded:
    """What each head's keys and values are made of: states of latents and of common channels, and a weight by head.

    A key is `key` channels wide, the common ones last, and a value `value`.
    """

    latent: ModelCacheRef
    common: ModelCacheRef
    weight: str
    key: int
    value: int


@frozen
class CacheRing:
    """Tiles of `tile` positions of a part's caches, in `slots` buffers each.

    `caches` are keys and values, perhaps `expanded` from latents; or latents and common channels. Of a row's positions
    a core has at most `positions`: all of them, or its blocks where they are shared out over `axes` of the mesh. Of a
    `window`, which ends before the first of the rows, the positions lie in turn in as many as there are.
    """

    name: CacheRingRef
    part: str
    caches: tuple[CacheRef, ...]
    buffers: tuple[BufferRef, ...]
    tile: int
    slots: int
    positions: int
    axes: tuple[str, ...] = ()
    expanded: Expanded | None = None
    window: int | None = None

    @property
    def tiles(self) -> int:
        """How many tiles of a row a core can have."""
        return -(-self.positions // self.tile)


@frozen
class Piece:
    """Of what arrives from each core, the `width` columns from `start` on, and the buffer where they come.

    What is gathered comes side by side; or head by head into a buffer `[rows, heads of all, n]`.
    """

    result: BufferRef
    start: int
    width: int


@frozen
class Collective:
    """What cores do together, in one of the kinds of `dsl/collectives`.

    Each core gives `width` columns from `first` on of the buffer `value`, `[rows, n]`. A sum completes `result`; what
    is gathered goes to `pieces`. Where a sum is scattered, all of the buffer `beside` may go to every core: then this
    core's columns and those are the `pieces`. To merge, each core sends all others their heads of a softmax over its
    own positions: `value` is `[rows, heads of all, n + 128]`, `result` `[rows, heads, n]`, and `width` the columns of a
    core's heads.
    """

    name: CollectiveRef
    kind: CollectiveKind
    wire: Wire
    axes: tuple[str, ...]
    value: BufferRef
    result: BufferRef | None
    first: int
    width: int
    span: Span = field(repr=False, eq=False)
    pieces: tuple[Piece, ...] = ()
    beside: BufferRef | None = None


@frozen
class ExpertPool:
    """The experts of a part on one core: `count` in HBM, each as `layout` says, and `slots` for those that are chosen.

    `products` are the weights multiplied together, the innermost first; `routes` is the buffer of all experts'
    weights. A row chooses `top`, and all rows at most `most` of this core's. Experts are shared out over `axes` of the
    mesh.
    """

    name: ExpertPoolRef
    part: str
    array: ExpertArrayRef
    slots: int
    products: tuple[tuple[str, ...], ...]
    layout: ExpertLayout
    routes: BufferRef
    count: int
    top: int
    most: int
    axes: tuple[str, ...]
    span: Span = field(repr=False, eq=False)


@frozen
class Array:
    """An operand or output of one core in HBM, with an entry for each layer of its `part`, if it has one.

    `latents` are caches of which a step writes an entry and reads none: what is kept expanded was made of them.
    """

    name: ArrayRef
    shape: tuple[int, ...]
    dtype: str
    kind: str
    part: str | None = None


def ref_of(node: m.Node, owners: tuple[str, ...], views: Mapping[m.Ref, View]) -> m.Ref | None:
    """What a name in an expression, or a read, stands for: the value of the first of `owners` that has one."""
    if isinstance(node, m.Local):
        found = (ValueRef(owner, node.name) for owner in dict.fromkeys((*owners, "")))
        return next((ref for ref in found if ref in views), None)
    return node.ref if isinstance(node, m.Read) else None
