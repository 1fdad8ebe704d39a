"""What all rules of the grammar share: spans, words, numbers and names."""

from __future__ import annotations

from typing import Any

from lark import Token, Tree
from lark.tree import Meta

from ...source import Source, Span
from .. import syntax as s


class BaseRules:
    """Children come in the order of the grammar; an absent optional one is `None`."""

    def __init__(self, source: Source, base: int = 0) -> None:
        self.source = source
        self.base = base

    def transform(self, tree: Tree[Token]) -> Any:
        """What a rule's method makes of it, once its children are made."""
        children = [self.transform(child) if isinstance(child, Tree) else child for child in tree.children]
        return getattr(self, tree.data)(tree.meta, children)

    def span(self, meta: Meta) -> Span:
        """The characters that a rule matched; `base` is where the parsed text starts in its file."""
        return Span(self.source, self.base + meta.start_pos, self.base + meta.end_pos)

    def word(self, token: Token) -> s.Name:
        """A token as a name."""
        assert token.start_pos is not None
        assert token.end_pos is not None
        return s.Name(Span(self.source, self.base + token.start_pos, self.base + token.end_pos), str(token))

    def optional(self, token: Token | None) -> s.Name | None:
        """A token that may be absent."""
        return None if token is None else self.word(token)

    def number(self, meta: Meta, c: list[Any]) -> s.Number:
        """`12`, `1e-5`."""
        return s.Number(self.span(meta), number(c[0]), str(c[0]))

    def negative(self, meta: Meta, c: list[Any]) -> s.Unary:
        """`-5`."""
        return s.Unary(self.span(meta), "-", c[-1])

    def string(self, meta: Meta, c: list[Any]) -> s.String:
        """Without its quotes."""
        return s.String(self.span(meta), str(c[0])[1:-1])

    def name(self, meta: Meta, c: list[Any]) -> s.Name:
        """One word."""
        return self.word(c[0])

    def dotted(self, meta: Meta, c: list[Any]) -> s.Name:
        """Words joined by points."""
        return s.Name(self.span(meta), ".".join(c))

    def names(self, meta: Meta, c: list[Any]) -> tuple[s.Name, ...]:
        """`a, b`."""
        return tuple(self.word(t) for t in c)

    def dotteds(self, meta: Meta, c: list[Any]) -> tuple[s.Name, ...]:
        """`p.a, p.b`."""
        return tuple(c)

    keys = shape = dotteds


def items(children: list[Any]) -> tuple[Any, ...]:
    """Nodes among a rule's children: neither absent ones nor words."""
    return tuple(x for x in children if x is not None and not isinstance(x, Token))


def number(text: str) -> int | float:
    """A number as Python has it."""
    return int(text) if text.isdigit() else float(text)
