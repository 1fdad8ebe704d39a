"""Rules of a file and of what a model declares."""

from __future__ import annotations

from typing import Any

from lark import Token
from lark.tree import Meta

from .. import syntax as s
from .base import BaseRules, items


class ModelRules(BaseRules):
    """Files, models and their declarations."""

    def file(self, meta: Meta, c: list[Any]) -> s.File:
        """Version line and blocks; comments are added by the parser."""
        items = [x for x in c if x is not None and not isinstance(x, Token)]
        version = next((x for x in items if isinstance(x, s.Number)), None)
        return s.File(self.source, version, tuple(x for x in items if x is not version), ())

    def version(self, meta: Meta, c: list[Any]) -> s.Number:
        """`mks 1`."""
        return c[0]

    def use(self, meta: Meta, c: list[Any]) -> s.Use:
        """`use "file"`."""
        return s.Use(self.span(meta), c[0])

    def model(self, meta: Meta, c: list[Any]) -> s.Model:
        """Name, drafted model, items."""
        return s.Model(self.span(meta), self.word(c[0]), self.optional(c[1]), items(c[2:]))

    def size(self, meta: Meta, c: list[Any]) -> s.Size:
        """`size` and `const`."""
        return s.Size(self.span(meta), str(c[0]), self.word(c[1]), c[2], c[3] or ())

    def list_decl(self, meta: Meta, c: list[Any]) -> s.ListDecl:
        """Items, then keys and filter."""
        return s.ListDecl(self.span(meta), self.word(c[0]), tuple(c[1:-2]), c[-2] or (), c[-1])

    def stepped(self, meta: Meta, c: list[Any]) -> s.Range:
        """`a .. b by c`."""
        return s.Range(self.span(meta), *[x for x in c if not isinstance(x, Token)])

    def require(self, meta: Meta, c: list[Any]) -> s.Require:
        """A guard on the config."""
        return s.Require(self.span(meta), c[0], c[-3], c[-1] is not None)

    def ignore(self, meta: Meta, c: list[Any]) -> s.Ignore:
        """Tensors of the checkpoint that are meant to be unread."""
        return s.Ignore(self.span(meta), tuple(c))

    def taps(self, meta: Meta, c: list[Any]) -> s.Taps:
        """Values of the target that a drafter reads."""
        return s.Taps(self.span(meta), self.word(c[0]), c[1], self.word(c[2]))

    def function(self, meta: Meta, c: list[Any]) -> s.Function:
        """A pure function."""
        return s.Function(self.span(meta), self.word(c[0]), tuple(map(self.word, c[1:-1])), c[-1])

    def weights(self, meta: Meta, c: list[Any]) -> s.Weights:
        """A block of weights."""
        return s.Weights(self.span(meta), c[0], items(c[1:]))

    def weight(self, meta: Meta, c: list[Any]) -> s.Declaration:
        """One line of a weights block."""
        tensors = tuple(
            x if isinstance(x, s.CheckpointTensor) else s.CheckpointTensor(x.span, x)
            for x in c[3:]
            if not isinstance(x, Token)
        )
        return s.Declaration(self.span(meta), c[0], c[1], c[2], tensors)

    def tensor(self, meta: Meta, c: list[Any]) -> s.CheckpointTensor:
        """A tensor's name with its options."""
        rounded, name, rows, scale, global_scale = c
        return s.CheckpointTensor(self.span(meta), name, rounded is not None, rows, scale, global_scale)

    def kind(self, meta: Meta, c: list[Any]) -> tuple[str, s.Expr | None]:
        """`state`, `cache last n`, `buffer`."""
        return str(c[0]), c[1] if len(c) > 1 else None

    def states(self, meta: Meta, c: list[Any]) -> s.States:
        """A block of states."""
        return s.States(self.span(meta), c[0][0], c[0][1], items(c[1:]))

    def state(self, meta: Meta, c: list[Any]) -> s.Declaration:
        """One line of a state block."""
        return s.Declaration(self.span(meta), c[0], c[1], c[2])

    def codec(self, meta: Meta, c: list[Any]) -> s.Codec:
        """`bf16`, `int4 group 128`, `int8 by column`."""
        name, how, detail = self.word(c[0]), c[1], c[2]
        if how is None:
            return s.Codec(self.span(meta), name)
        if isinstance(detail, s.Number):
            return s.Codec(self.span(meta), name, str(how), int(detail.value))
        return s.Codec(self.span(meta), name, f"by {detail}")

    def part(self, meta: Meta, c: list[Any]) -> s.Part:
        """Name and items."""
        return s.Part(self.span(meta), self.word(c[0]), items(c[1:]))

    def step(self, meta: Meta, c: list[Any]) -> s.Step:
        """Name, block, outputs and statements."""
        return s.Step(self.span(meta), self.optional(c[0]), self.optional(c[1]), c[2] or (), items(c[3:]))
