"""The syntax tree: what was written, with a span on every node and every comment kept.

Nodes have no `repr`: making one for each class would cost the checker a tenth of its time.
"""

from __future__ import annotations

from ..records import frozen
from ..source import Source, Span


@frozen(repr=False)
class Comment:
    """From `#` to the end of its line; `own_line` when nothing stands before it."""

    span: Span
    text: str
    own_line: bool


# Expressions


@frozen(repr=False)
class Number:
    """A number, perhaps with a unit (`2 MiB`); `text` is how the number was written."""

    span: Span
    value: int | float
    text: str
    unit: str | None = None


@frozen(repr=False)
class String:
    """A text in double quotes."""

    span: Span
    value: str


@frozen(repr=False)
class Name:
    """A name, dotted or not: `h`, `attention.wk`."""

    span: Span
    text: str

    @property
    def parts(self) -> tuple[str, ...]:
        """The name cut at its points."""
        return tuple(self.text.split("."))


@frozen(repr=False)
class Unary:
    """`-x`, `not x`."""

    span: Span
    op: str
    operand: Expr


@frozen(repr=False)
class Binary:
    """Arithmetic, comparison, `in`, `and`, `or`, `@`."""

    span: Span
    op: str
    left: Expr
    right: Expr


@frozen(repr=False)
class When:
    """`value when condition [else other]`; without `else` only where a statement may be guarded."""

    span: Span
    value: Expr
    condition: Expr
    other: Expr | None


@frozen(repr=False)
class Keyword:
    """`name = value` in a call."""

    span: Span
    name: Name
    value: Expr


@frozen(repr=False)
class Lambda:
    """`{ e -> body }`."""

    span: Span
    parameter: Name
    body: Expr


@frozen(repr=False)
class Call:
    """`function(arguments, keyword = value) { body }`."""

    span: Span
    function: Name
    arguments: tuple[Expr, ...]
    keywords: tuple[Keyword, ...]
    body: Lambda | None


@frozen(repr=False)
class Index:
    """`base[index]`."""

    span: Span
    base: Expr
    index: Expr


@frozen(repr=False)
class Range:
    """`start .. stop by step`, half open."""

    span: Span
    start: Expr
    stop: Expr | None
    step: Expr | None = None


@frozen(repr=False)
class Paren:
    """An expression in parentheses, kept so that the formatter prints it again."""

    span: Span
    inner: Expr


type Expr = Number | String | Name | Unary | Binary | When | Call | Index | Range | Paren


# Declarations of a model


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


# Statements


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


# Schedules


@frozen(repr=False)
class Words:
    """A value of several words, `every row`."""

    span: Span
    text: str


@frozen(repr=False)
class Option:
    """`(key = value)`, or a bare word."""

    span: Span
    name: Name
    value: Number | Words | None


@frozen(repr=False)
class Target:
    """`target tpu7x 2x2x1`."""

    span: Span
    chip: Name
    topology: tuple[int, ...]


@frozen(repr=False)
class Setting:
    """`rows 1, 2`, `span 1, 8 (…)`, `context 4096`: a keyword and numbers."""

    span: Span
    keyword: str
    values: tuple[Number, ...]
    options: tuple[Option, ...]


@frozen(repr=False)
class Axis:
    """One axis of a mesh: `tp = 8`."""

    span: Span
    name: Name
    size: Number


@frozen(repr=False)
class Mesh:
    """`mesh ep = 4, tp = 8`; the last axis varies fastest."""

    span: Span
    axes: tuple[Axis, ...]


@frozen(repr=False)
class ShardItem:
    """A size to shard, perhaps `(repeat)`."""

    span: Span
    size: Name
    option: Name | None


@frozen(repr=False)
class Shard:
    """`shard ep, tp : heads, ffn`."""

    span: Span
    axes: tuple[Name, ...]
    items: tuple[ShardItem, ...]


@frozen(repr=False)
class Split:
    """`split mla.q_a over ep, tp`."""

    span: Span
    weights: tuple[Name, ...]
    axes: tuple[Name, ...]


@frozen(repr=False)
class Group:
    """Weights that have the same operand and are streamed as one: `(wq, wk)`; a single one is a group too."""

    span: Span
    weights: tuple[Name, ...]


@frozen(repr=False)
class StreamLine:
    """`attention : (wq, wk, wv), wo`."""

    span: Span
    part: Name
    groups: tuple[Group, ...]


@frozen(repr=False)
class Stream:
    """`stream name { slots = 12 … }`."""

    span: Span
    name: Name
    items: tuple[Option | StreamLine, ...]


@frozen(repr=False)
class Fetch:
    """`fetch moe.experts (slots = 4)`."""

    span: Span
    what: Name
    options: tuple[Option, ...]


@frozen(repr=False)
class Point:
    """When: `attention.start`, `before P.v`, `after P.v`, `previous P.v`, `previous layer`."""

    span: Span
    relation: str | None
    name: Name


@frozen(repr=False)
class Prefetch:
    """`prefetch what at point, point (options)`."""

    span: Span
    what: Name
    points: tuple[Point, ...]
    options: tuple[Option, ...]


@frozen(repr=False)
class Gather:
    """`gather (a, b)`: values that travel in one message."""

    span: Span
    values: tuple[Name, ...]


@frozen(repr=False)
class Reduce:
    """`reduce a, b (by = …, wire = …)`."""

    span: Span
    values: tuple[Name, ...]
    options: tuple[Option, ...]


@frozen(repr=False)
class Overlap:
    """`overlap gather a, b with (x, y), z`; `verb` is `gather` or `reduce`."""

    span: Span
    verb: str
    values: tuple[Name, ...]
    groups: tuple[Group, ...]


@frozen(repr=False)
class Form:
    """`form mla.cache = expanded`."""

    span: Span
    what: Name
    value: Name


@frozen(repr=False)
class Store:
    """`store moe.gate as fp8 block 256`."""

    span: Span
    weights: tuple[Name, ...]
    codec: Codec


type ScheduleItem = (
    Target | Setting | Mesh | Shard | Split | Stream | Fetch | Prefetch | Gather | Reduce | Overlap | Form | Store
)


@frozen(repr=False)
class Schedule:
    """`schedule name for model { … }`."""

    span: Span
    name: Name
    model: Name
    items: tuple[ScheduleItem, ...]


@frozen(repr=False)
class Pairing:
    """`target = model on schedule`."""

    span: Span
    role: Name
    model: Name
    schedule: Name


@frozen(repr=False)
class Speculate:
    """`speculate name { … }`."""

    span: Span
    name: Name
    items: tuple[Pairing | Option, ...]


@frozen(repr=False)
class Use:
    """`use "file.mks"`."""

    span: Span
    path: String


type TopLevel = Use | Model | Schedule | Speculate


@frozen(repr=False)
class File:
    """A whole file; `damaged` are the words of statements that did not parse, which may have been declarations."""

    source: Source
    version: Number | None
    items: tuple[TopLevel, ...]
    comments: tuple[Comment, ...]
    damaged: frozenset[str] = frozenset()
