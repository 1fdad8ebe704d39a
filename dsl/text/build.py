"""Lark's parse tree to the syntax tree: one method for each rule of `grammar/mks.lark` that makes a node."""

from __future__ import annotations

from typing import Any

from lark import Token, Tree
from lark.tree import Meta

from ..source import Source, Span
from . import syntax as s


class Builder:
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

    # words

    def number(self, meta: Meta, c: list[Any]) -> s.Number:
        """`12`, `1e-5`."""
        return s.Number(self.span(meta), _value(c[0]), str(c[0]))

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

    # files and models

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
        return s.Model(self.span(meta), self.word(c[0]), self.optional(c[1]), _items(c[2:]))

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
        return s.Weights(self.span(meta), c[0], _items(c[1:]))

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
        return s.States(self.span(meta), c[0][0], c[0][1], _items(c[1:]))

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
        return s.Part(self.span(meta), self.word(c[0]), _items(c[1:]))

    def step(self, meta: Meta, c: list[Any]) -> s.Step:
        """Name, block, outputs and statements."""
        return s.Step(self.span(meta), self.optional(c[0]), self.optional(c[1]), c[2] or (), _items(c[3:]))

    # statements and expressions

    def assign(self, meta: Meta, c: list[Any]) -> s.Assign:
        """Targets, then the value."""
        return s.Assign(self.span(meta), tuple(c[:-1]), c[-1])

    def run(self, meta: Meta, c: list[Any]) -> s.Run:
        """A part, perhaps one of two."""
        return s.Run(self.span(meta), self.word(c[0]), c[1], self.optional(c[2]))

    def for_(self, meta: Meta, c: list[Any]) -> s.For:
        """Variable, range, body."""
        bounds = s.Range(c[1].span.until(c[2].span), c[1], c[2])
        return s.For(self.span(meta), self.word(c[0]), bounds, _items(c[3:]))

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

    # schedules

    def schedule(self, meta: Meta, c: list[Any]) -> s.Schedule:
        """Name, model, items."""
        return s.Schedule(self.span(meta), self.word(c[0]), self.word(c[1]), _items(c[2:]))

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
        return s.Stream(self.span(meta), self.word(c[0]), _items(c[1:]))

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
        return s.Number(self.span(meta), _value(c[0]), str(c[0]), None if c[1] is None else str(c[1]))

    def words(self, meta: Meta, c: list[Any]) -> s.Words:
        """Words, one space between."""
        return s.Words(self.span(meta), " ".join(c))

    def speculate(self, meta: Meta, c: list[Any]) -> s.Speculate:
        """Name, items."""
        return s.Speculate(self.span(meta), self.word(c[0]), _items(c[1:]))

    def pairing(self, meta: Meta, c: list[Any]) -> s.Pairing:
        """Role, model, schedule."""
        return s.Pairing(self.span(meta), *map(self.word, c))


def _items(children: list[Any]) -> tuple[Any, ...]:
    return tuple(x for x in children if x is not None and not isinstance(x, Token))


def _value(text: str) -> int | float:
    return int(text) if text.isdigit() else float(text)
