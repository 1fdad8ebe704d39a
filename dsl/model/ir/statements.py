"""What parts and steps do, in order."""

from __future__ import annotations

from ...records import frozen
from ...source import Span
from .expressions import Node, Static, Type


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
