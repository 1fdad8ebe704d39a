"""A model: its declarations, its parts and steps, and their statements."""

from __future__ import annotations

from ...records import frozen
from ...source import Span
from .expressions import Expr, Index, Name, Number, Range, String


@frozen(repr=False)
class Size:
    """`size d = 576 from key or other`; `const` likewise (`kind`)."""

    span: Span
    kind: str
    name: Name
    value: Expr
    keys: tuple[Name, ...]


@frozen(repr=False)
class ListDecl:
    """`list full = 3 .. layers by 4 from key where "word"`, or `where 0`."""

    span: Span
    name: Name
    items: tuple[Expr, ...]
    keys: tuple[Name, ...]
    where: String | Number | None


@frozen(repr=False)
class Require:
    """`require key == value or absent`."""

    span: Span
    key: Name
    value: Expr
    or_absent: bool


@frozen(repr=False)
class Ignore:
    """`ignore "visual.*", "mtp.*"`."""

    span: Span
    patterns: tuple[String, ...]


@frozen(repr=False)
class Taps:
    """`taps aux = target.x before list`."""

    span: Span
    name: Name
    value: Name
    before: Name


@frozen(repr=False)
class Function:
    """`function f(a, b) = body`."""

    span: Span
    name: Name
    parameters: tuple[Name, ...]
    body: Expr


@frozen(repr=False)
class Codec:
    """How numbers are stored: `bf16`, `mxfp4`, `int4 group 128`, `int8 by column`, `fp8 block 256`."""

    span: Span
    name: Name
    grouping: str | None = None
    size: int | None = None


@frozen(repr=False)
class CheckpointTensor:
    """Where a weight lies: a tensor's name with its options, or another weight's name."""

    span: Span
    target: String | Name
    rounded: bool = False
    rows: Expr | None = None
    scale: String | None = None
    global_scale: String | None = None


@frozen(repr=False)
class Declaration:
    """`a, b : bf16[n, d] "name" or other`; states and caches have no places."""

    span: Span
    names: tuple[Name, ...]
    codec: Codec
    shape: tuple[Expr, ...]
    tensors: tuple[CheckpointTensor, ...] = ()


@frozen(repr=False)
class Weights:
    """`weights "prefix" { … }`."""

    span: Span
    prefix: String | None
    declarations: tuple[Declaration, ...]


@frozen(repr=False)
class States:
    """`state`, `cache [last n]` or `buffer`, as `kind` says."""

    span: Span
    kind: str
    last: Expr | None
    declarations: tuple[Declaration, ...]


@frozen(repr=False)
class Assign:
    """`a, b = value`, `cache[position] = value`, perhaps guarded: the guard is a `When` without `else`."""

    span: Span
    targets: tuple[Name | Index, ...]
    value: Expr


@frozen(repr=False)
class Run:
    """A part's name, perhaps `when condition [else other]`."""

    span: Span
    part: Name
    condition: Expr | None
    other: Name | None


@frozen(repr=False)
class For:
    """`for layer in 0 .. layers { … }`."""

    span: Span
    variable: Name
    range: Range
    body: tuple[Statement, ...]


type Statement = Assign | Run | For


@frozen(repr=False)
class Part:
    """`part name { weights, states and statements }`."""

    span: Span
    name: Name
    items: tuple[Weights | States | Statement, ...]


@frozen(repr=False)
class Step:
    """`step [name] [on block] [-> outputs] { … }`."""

    span: Span
    name: Name | None
    block: Name | None
    outputs: tuple[Name, ...]
    body: tuple[Statement, ...]

    @property
    def head(self) -> Span:
        """Its name, or the word `step`."""
        return Span(self.span.source, self.span.start, self.span.start + 4) if self.name is None else self.name.span


type ModelItem = Size | ListDecl | Require | Ignore | Taps | Function | Weights | States | Part | Step


@frozen(repr=False)
class Model:
    """`model name [drafts target] { … }`."""

    span: Span
    name: Name
    drafts: Name | None
    items: tuple[ModelItem, ...]
