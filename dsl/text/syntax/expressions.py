"""Expressions, in definitions and schedules alike."""

from __future__ import annotations

from ...records import frozen
from ...source import Span


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
