"""Expressions: values of one token, each with its type."""

from __future__ import annotations

from typing import ClassVar

from ...records import frozen
from ...source import Span
from ...text import syntax as s
from ..shapes import Shape, show


@frozen(repr=False)
class Type:
    """One token's value: `dtype` is `bf16`, `f32`, `int32` or `routes` (shape `[experts, top]`)."""

    dtype: str
    shape: Shape = ()

    def __str__(self) -> str:
        return f"{self.dtype}{show(self.shape)}"


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


class Ref:
    """What a pass that comes later calls something by. Its `label` is for people: `LABEL` with the fields filled in."""

    __slots__ = ()
    LABEL: ClassVar[str] = ""

    @property
    def label(self) -> str:
        """For people."""
        return self.LABEL.format(self)

    def __str__(self) -> str:
        return self.label


@frozen(repr=False)
class Read:
    """A value where such a pass has put it."""

    ref: Ref
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


type Node = Static | Local | Read | Input | WeightRef | StateRef | Slice | Call | Select | Let | Experts
