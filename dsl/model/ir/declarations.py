"""What a model declares, and the model."""

from __future__ import annotations

from attrs import field

from ...records import frozen
from ...source import Span
from ...text import syntax as s
from ..shapes import Shape
from .expressions import Static, Type
from .statements import Statement


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


# The step without a name, which decodes tokens.
DECODE = ""


@frozen(repr=False)
class Step:
    """A named pass; `DECODE` is the one whose output is `logits`."""

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

    @property
    def decode(self) -> Step:
        """The step that decodes tokens; raises `KeyError` of a model that has none, as drafters have."""
        return self.steps[DECODE]
