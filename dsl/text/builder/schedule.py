"""Rules of schedules, and of models that speculate."""

from __future__ import annotations

from typing import Any

from lark.tree import Meta

from .. import syntax as s
from .base import BaseRules, items, number


class ScheduleRules(BaseRules):
    """Schedules and pairings."""

    def schedule(self, meta: Meta, c: list[Any]) -> s.Schedule:
        """Name, model, items."""
        return s.Schedule(self.span(meta), self.word(c[0]), self.word(c[1]), items(c[2:]))

    def target_chip(self, meta: Meta, c: list[Any]) -> s.Target:
        """Chip and topology."""
        return s.Target(self.span(meta), self.word(c[0]), tuple(map(int, c[1].split("x"))))

    def setting(self, meta: Meta, c: list[Any]) -> s.Setting:
        """Keyword, numbers, options."""
        return s.Setting(self.span(meta), str(c[0]), tuple(c[1:-1]), c[-1] or ())

    def mesh(self, meta: Meta, c: list[Any]) -> s.Mesh:
        """Axes."""
        return s.Mesh(self.span(meta), tuple(c))

    def axis(self, meta: Meta, c: list[Any]) -> s.Axis:
        """Name and length."""
        return s.Axis(self.span(meta), self.word(c[0]), c[1])

    def shard(self, meta: Meta, c: list[Any]) -> s.Shard:
        """Axes and sizes."""
        return s.Shard(self.span(meta), c[0], tuple(c[1:]))

    def shard_item(self, meta: Meta, c: list[Any]) -> s.ShardItem:
        """Size, option."""
        return s.ShardItem(self.span(meta), self.word(c[0]), self.optional(c[1]))

    def split(self, meta: Meta, c: list[Any]) -> s.Split:
        """Products and axes."""
        return s.Split(self.span(meta), c[0], c[1])

    def group(self, meta: Meta, c: list[Any]) -> s.Group:
        """Weights that share an operand."""
        return s.Group(self.span(meta), c[0] if isinstance(c[0], tuple) else (c[0],))

    def stream_line(self, meta: Meta, c: list[Any]) -> s.StreamLine:
        """Part and groups."""
        return s.StreamLine(self.span(meta), self.word(c[0]), tuple(c[1:]))

    def stream(self, meta: Meta, c: list[Any]) -> s.Stream:
        """Name and items."""
        return s.Stream(self.span(meta), self.word(c[0]), items(c[1:]))

    def fetch(self, meta: Meta, c: list[Any]) -> s.Fetch:
        """What, options."""
        return s.Fetch(self.span(meta), c[0], c[1] or ())

    def point(self, meta: Meta, c: list[Any]) -> s.Point:
        """Relation, name."""
        return s.Point(self.span(meta), None if c[0] is None else str(c[0]), c[1])

    def prefetch(self, meta: Meta, c: list[Any]) -> s.Prefetch:
        """What, points, options."""
        return s.Prefetch(self.span(meta), c[0], tuple(c[1:-1]), c[-1] or ())

    def gather(self, meta: Meta, c: list[Any]) -> s.Gather:
        """Values."""
        return s.Gather(self.span(meta), c[0])

    def reduce(self, meta: Meta, c: list[Any]) -> s.Reduce:
        """Values, options."""
        return s.Reduce(self.span(meta), c[0], c[1] or ())

    def overlap(self, meta: Meta, c: list[Any]) -> s.Overlap:
        """Verb, values, products."""
        return s.Overlap(self.span(meta), str(c[0]), c[1], tuple(c[2:]))

    def form(self, meta: Meta, c: list[Any]) -> s.Form:
        """What, value."""
        return s.Form(self.span(meta), c[0], self.word(c[1]))

    def store(self, meta: Meta, c: list[Any]) -> s.Store:
        """Weights, codec."""
        return s.Store(self.span(meta), c[0], c[1])

    def options(self, meta: Meta, c: list[Any]) -> tuple[s.Option, ...]:
        """`(a = 1, b)`."""
        return tuple(c)

    def option(self, meta: Meta, c: list[Any]) -> s.Option:
        """`key = value`."""
        return s.Option(self.span(meta), self.word(c[0]), c[1])

    def flag(self, meta: Meta, c: list[Any]) -> s.Option:
        """A bare word."""
        return s.Option(self.span(meta), self.word(c[0]), None)

    def quantity(self, meta: Meta, c: list[Any]) -> s.Number:
        """A number with a unit."""
        return s.Number(self.span(meta), number(c[0]), str(c[0]), None if c[1] is None else str(c[1]))

    def words(self, meta: Meta, c: list[Any]) -> s.Words:
        """Words, one space between."""
        return s.Words(self.span(meta), " ".join(c))

    def speculate(self, meta: Meta, c: list[Any]) -> s.Speculate:
        """Name, items."""
        return s.Speculate(self.span(meta), self.word(c[0]), items(c[1:]))

    def pairing(self, meta: Meta, c: list[Any]) -> s.Pairing:
        """Role, model, schedule."""
        return s.Pairing(self.span(meta), *map(self.word, c))
