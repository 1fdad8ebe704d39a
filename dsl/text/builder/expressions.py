"""Rules of expressions and statements."""

from __future__ import annotations

from typing import Any

from lark.tree import Meta

from .. import syntax as s
from .base import BaseRules, items


class ExpressionRules(BaseRules):
    """Expressions, and the statements of parts and steps."""

    def assign(self, meta: Meta, c: list[Any]) -> s.Assign:
        """Targets, then the value."""
        return s.Assign(self.span(meta), tuple(c[:-1]), c[-1])

    def run(self, meta: Meta, c: list[Any]) -> s.Run:
        """A part, perhaps one of two."""
        return s.Run(self.span(meta), self.word(c[0]), c[1], self.optional(c[2]))

    def for_(self, meta: Meta, c: list[Any]) -> s.For:
        """Variable, range, body."""
        bounds = s.Range(c[1].span.until(c[2].span), c[1], c[2])
        return s.For(self.span(meta), self.word(c[0]), bounds, items(c[3:]))

    def when_else(self, meta: Meta, c: list[Any]) -> s.When:
        """A choice."""
        return s.When(self.span(meta), *c)

    def when_only(self, meta: Meta, c: list[Any]) -> s.When:
        """A guard."""
        return s.When(self.span(meta), c[0], c[1], None)

    def binary(self, meta: Meta, c: list[Any]) -> s.Binary:
        """Left, operator, right."""
        return s.Binary(self.span(meta), str(c[1]), c[0], c[2])

    def unary(self, meta: Meta, c: list[Any]) -> s.Unary:
        """Operator, operand."""
        return s.Unary(self.span(meta), str(c[0]), c[1])

    def paren(self, meta: Meta, c: list[Any]) -> s.Paren:
        """Parentheses."""
        return s.Paren(self.span(meta), c[0])

    def index(self, meta: Meta, c: list[Any]) -> s.Index:
        """`base[index]`."""
        return s.Index(self.span(meta), c[0], c[1])

    element = index

    def slice(self, meta: Meta, c: list[Any]) -> s.Range:
        """`a .. b`."""
        return s.Range(self.span(meta), c[0], c[1])

    def call(self, meta: Meta, c: list[Any]) -> s.Call:
        """Function, arguments, body."""
        given = c[1] or ()
        plain = tuple(a for a in given if not isinstance(a, s.Keyword))
        return s.Call(self.span(meta), c[0], plain, tuple(a for a in given if isinstance(a, s.Keyword)), c[2])

    def arguments(self, meta: Meta, c: list[Any]) -> tuple[Any, ...]:
        """Plain and named ones, in order."""
        return tuple(c)

    def keyword(self, meta: Meta, c: list[Any]) -> s.Keyword:
        """`name = value`."""
        return s.Keyword(self.span(meta), self.word(c[0]), c[1])

    def lambda_(self, meta: Meta, c: list[Any]) -> s.Lambda:
        """`{ e -> body }`."""
        return s.Lambda(self.span(meta), self.word(c[0]), c[1])
