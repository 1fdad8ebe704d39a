"""The Model: typed mathematics. It knows sizes, weights, states and parts, and nothing of devices.

Inside a statement every number is f32. An `Assign` rounds each value to its type's dtype, a `Store` to its state's;
operands of matrix products are rounded as their op says. `bf16` means the working type, which an instance may widen.
"""

from __future__ import annotations

from attrs import field

from ..records import frozen
from ..source import Span
from ..text import syntax as s
from .shapes import Shape, show


@frozen(repr=False)
class Type:
    """One token's value: `dtype` is `bf16`, `f32`, `int32` or `routes` (shape `[experts, top]`)."""

    dtype: str
    shape: Shape = ()

    def __str__(self) -> str:
        return f"{self.dtype}{show(self.shape)}"


# Expressions


@frozen(repr=False)
class Static:
    """A scalar that is known once the sizes, and the `layer` or `row` in `depends`, are."""

    expr: s.Expr
    depends: frozenset[str]
    span: Span
    type: Type = Type("f32")


@frozen(repr=False)
class Local:
    """A named value: of this part, carried through the layers, or bound by a `Let` or `Experts`."""

    name: str
    type: Type
    span: Span


@frozen(repr=False)
class Input:
    """`token`, `position` or `row` of the row at hand, int32."""

    name: str
    type: Type
    span: Span


@frozen(repr=False)
class WeightRef:
    """A weight of this layer, or of the model; `name` is qualified, `attention.wq`."""

    name: str
    type: Type
    span: Span


@frozen(repr=False)
class StateRef:
    """A state, cache or buffer, whole."""

    name: str
    type: Type
    span: Span


@frozen(repr=False)
class Slice:
    """The first axis of a buffer from `start` to `stop`; `stop` may depend on the layer."""

    base: StateRef
    start: Static
    stop: Static
    type: Type
    span: Span


@frozen(repr=False)
class Call:
    """An op of the registry. `options` are the named scalars that were given."""

    op: str
    args: tuple[Node, ...]
    options: tuple[tuple[str, Static], ...]
    types: tuple[Type, ...]
    span: Span

    @property
    def type(self) -> Type:
        """The type of its (first) value."""
        return self.types[0]

    def option(self, name: str) -> Static | None:
        """A named scalar, if it was given."""
        return next((value for key, value in self.options if key == name), None)


@frozen(repr=False)
class Select:
    """One of two, by a condition on layer, row, sizes and lists."""

    condition: Static
    then: Node
    other: Node
    type: Type
    span: Span


@frozen(repr=False)
class Let:
    """Values used by name in `body`, unrounded: a function's arguments."""

    bindings: tuple[tuple[str, Node], ...]
    body: Node
    span: Span

    @property
    def type(self) -> Type:
        """The body's."""
        return self.body.type


@frozen(repr=False)
class Experts:
    """The sum over a token's routes of weight * body; `parameter` is bound to the expert's id in the body."""

    operand: Node
    routes: Node
    parameter: str
    body: Node
    type: Type
    span: Span


type Node = Static | Local | Input | WeightRef | StateRef | Slice | Call | Select | Let | Experts


# Statements


@frozen(repr=False)
class Assign:
    """`names = value`; each is rounded to its type. A false `guard` leaves carried values as they were."""

    names: tuple[str, ...]
    value: Node
    types: tuple[Type, ...]
    guard: Static | None
    span: Span


@frozen(repr=False)
class Write:
    """`state[index] = value`: a cache's entry at `position`, or an element of a buffer."""

    state: str
    index: Node
    value: Node
    guard: Static | None
    span: Span


@frozen(repr=False)
class Run:
    """A part at this place of the layer; with a condition, the other one (if any) where it is false."""

    part: str
    condition: Static | None
    other: str | None
    span: Span


@frozen(repr=False)
class Loop:
    """`for layer in start .. stop`, or over the rows of a block."""

    variable: str
    start: Static
    stop: Static
    body: tuple[Statement, ...]
    span: Span


type Statement = Assign | Write | Run | Loop


# Declarations


@frozen(repr=False)
class Size:
    """A size or constant, its default and the config keys it may be read from, tried in order."""

    name: str
    kind: str
    default: s.Expr
    keys: tuple[str, ...]
    span: Span


@frozen(repr=False)
class LayerList:
    """A list of numbers with a default; `where` keeps the indices of the config's items that equal it."""

    name: str
    items: tuple[s.Expr, ...]
    keys: tuple[str, ...]
    where: str | int | float | None
    span: Span


@frozen(repr=False)
class Require:
    """What the config must say."""

    key: str
    value: s.Expr
    or_absent: bool
    span: Span


@frozen(repr=False)
class Ignore:
    """Names of tensors that are meant to be unread: `*` is any text, `{size}` a size's value."""

    pattern: str
    span: Span


@frozen(repr=False)
class Codec:
    """How a weight is stored: `name` and, where it has groups, `group` elements (0: one group a column)."""

    name: str
    group: int | None = None

    def __str__(self) -> str:
        word = {"int4": f"group {self.group}", "fp8": f"block {self.group}", "int8": "by column"}.get(self.name)
        return self.name if word is None else f"{self.name} {word}"


@frozen(repr=False)
class CheckpointTensor:
    """A tensor in a checkpoint. `{layer}` and `{size}` in names run over the layer and that axis.

    `rows` is the first row taken (a scalar over sizes); `scale` and `global_scale` are the codec's companions.
    """

    name: str
    rows: Static | None
    scale: str | None
    global_scale: str | None
    rounded: bool
    span: Span


@frozen(repr=False)
class Alias:
    """Another weight, used where the places before are absent."""

    weight: str
    span: Span


@frozen(repr=False)
class Weight:
    """A weight, its type as the model uses it, and where checkpoints keep it, tried in order."""

    name: str
    part: str | None
    codec: Codec
    shape: Shape
    tensors: tuple[CheckpointTensor | Alias, ...]
    span: Span

    @property
    def type(self) -> Type:
        """As an operand: f32 where it is declared so, otherwise the working type."""
        return Type("f32" if self.codec.name == "f32" else "bf16", self.shape)


@frozen(repr=False)
class State:
    """`kind` is `state`, `cache` (one entry of `shape` a position, the `last` n of them) or `buffer`."""

    name: str
    part: str | None
    kind: str
    type: Type
    last: Static | None
    span: Span


@frozen(repr=False)
class Part:
    """A body that layers run."""

    name: str
    body: tuple[Statement, ...]
    span: Span


@frozen(repr=False)
class Taps:
    """Values of the drafted model before the listed layers, `[count, *shape]`."""

    name: str
    value: str
    layers: str
    type: Type
    span: Span


@frozen(repr=False)
class Step:
    """A named pass; `""` is the decode step, whose output is `logits`."""

    name: str
    block: str | None
    outputs: tuple[str, ...]
    body: tuple[Statement, ...]
    types: dict[str, Type] = field(eq=False)
    span: Span = field(kw_only=True)


@frozen(repr=False)
class Model:
    """A resolved model."""

    name: str
    drafts: Model | None
    sizes: dict[str, Size]
    lists: dict[str, LayerList]
    requires: tuple[Require, ...]
    ignores: tuple[Ignore, ...]
    weights: dict[str, Weight]
    states: dict[str, State]
    taps: dict[str, Taps]
    parts: dict[str, Part]
    steps: dict[str, Step]
    span: Span
