"""A schedule, and the pairing of two models that speculate."""

from __future__ import annotations

from ...records import frozen
from ...source import Span
from .expressions import Name, Number
from .model import Codec


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
