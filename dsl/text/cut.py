"""Cutting a text that does not parse into blocks and statements."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from attrs import field

from ..records import define
from .forms import BLOCKS, WORDS, block_context
from .limits import DEEPEST_BLOCK
from .scan import Piece, brackets, is_lambda

# A line that ends with one of these goes on; words only where something stands before them.
_GOES_ON = frozenset(", = : -> + - * / // % ** @ == != <= >= < >".split())
# How many blocks outwards a statement's home is looked for; more are refused anyway.
_FAR = 2 * DEEPEST_BLOCK
_JOINS = frozenset("or and not in when else from with at over".split())


class Trust(Enum):
    """What tells where a block ends when the braces do not."""

    BRACES = "braces alone"
    WORDS = "a word that can only begin a statement of an outer block"
    INDENT = "indentation"


@define
class Statement:
    """Pieces `first .. last` (exclusive), without the braces and the body."""

    first: int
    last: int
    body: Body | None = None


@define
class Body:
    """What stands in a block's braces, up to piece `end`.

    `first` is the block's word, `close` is `None` when the brace is missing.
    """

    first: int
    open: int
    context: str
    indent: int
    close: int | None = None
    end: int = 0
    statements: list[Statement] = field(factory=list)


@define
class Cut:
    """Statements of the file, and what is wrong with braces: indices of pieces."""

    statements: list[Statement] = field(factory=list)
    unclosed: list[tuple[Body, int]] = field(factory=list)
    stray: list[int] = field(factory=list)
    late: list[int] = field(factory=list)
    crowded: list[int] = field(factory=list)


@define
class Cutter:
    """Walks over the pieces once; `bodies` are the open blocks, innermost last."""

    text: str
    pieces: Sequence[Piece]
    trust: Trust
    pairs: dict[int, int]
    cut: Cut = field(factory=Cut)
    bodies: list[Body] = field(factory=list)
    first: int | None = None

    @property
    def context(self) -> str:
        """The kind of block that we are in."""
        return self.bodies[-1].context if self.bodies else "file"

    def run(self) -> Cut:
        """Every piece belongs to a statement, is a brace of a block, or is listed as wrong."""
        i, size = 0, len(self.pieces)
        while i < size:
            piece = self.pieces[i]
            if piece.kind == "newline":
                if self.first is not None and not self.goes_on(i):
                    self.finish(i)
            elif piece.text == "}" and piece.kind == "sign":
                self.finish(i)
                self.close(i)
            elif piece.text == "{" and not is_lambda(self.pieces, i):
                self.open(i)
            else:
                if self.first is None:
                    self.begin(i)
                i = self.pairs.get(i, i)
            i += 1
        self.finish(size)
        self.leave(0, size)
        return self.cut

    def starts_line(self, i: int) -> bool:
        """Whether nothing stands before a piece in its line."""
        return i == 0 or self.pieces[i - 1].kind == "newline"

    def indent(self, i: int) -> int:
        """Columns before the line of a piece begins."""
        start = self.pieces[i].start
        line = self.text[self.text.rfind("\n", 0, start) + 1 : start].expandtabs(8)
        return len(line) - len(line.lstrip())

    def leave(self, depth: int, seen: int) -> None:
        """Leave blocks that are not closed until `depth` are open; piece `seen` showed it."""
        while len(self.bodies) > depth:
            self.bodies[-1].end = seen
            self.cut.unclosed.append((self.bodies.pop(), seen))

    def begin(self, i: int) -> None:
        """A statement starts."""
        if not self.starts_line(i) and self.pieces[i - 1].text == "}":
            self.cut.crowded.append(i)
        if self.starts_line(i):
            if self.trust is Trust.INDENT:
                column, depth = self.indent(i), len(self.bodies)
                while depth and column <= self.bodies[depth - 1].indent:
                    depth -= 1
                self.leave(depth, i)
            if self.trust is not Trust.BRACES:
                self.leave(self.home(i), i)
        self.first = i

    def home(self, i: int) -> int:
        """How many blocks may stay open around a statement that begins with this word."""
        here, after = self.pieces[i], self.pieces[i + 1] if i + 1 < len(self.pieces) else None
        stays = len(self.bodies)
        if here.kind != "word" or after is None or here.text in WORDS[self.context]:
            return stays
        if after.kind not in ("word", "string") and after.text not in ("{", "("):
            return stays
        for depth in range(stays - 1, max(-1, stays - _FAR), -1):
            if here.text in WORDS[self.bodies[depth - 1].context if depth else "file"]:
                return depth
        return stays

    def goes_on(self, i: int) -> bool:
        """Whether the statement continues behind the newline at `i`."""
        assert self.first is not None
        last = self.pieces[i - 1]
        if last.kind == "newline":
            return True
        after = i
        while after < len(self.pieces) and self.pieces[after].kind == "newline":
            after += 1
        following = self.pieces[after : after + 2]
        if following and following[0].text == "{" and not is_lambda(self.pieces, after):
            if self.pieces[self.first].text in BLOCKS:
                self.cut.late.append(after)
                return True
            return False
        if last.text in _JOINS:
            before = self.pieces[i - 2]
            operand = before.kind not in ("sign", "newline") or before.text in (")", "]", "}", "..")
            if i - 1 == self.first or not (operand or last.text == "not"):
                return False
        elif last.text not in _GOES_ON or last.kind != "sign":
            return False
        # A line that is a statement by itself is not swallowed by the broken one before it.
        if len(following) == 2 and following[0].kind == "word":
            if following[1].text == "=" and last.text != ",":
                return False
            if following[0].text in WORDS[self.context] and following[1].kind == "word":
                return False
        return True

    def finish(self, i: int) -> None:
        """The current statement ends before piece `i`."""
        if self.first is not None:
            statement = Statement(self.first, self.end(i))
            (self.bodies[-1].statements if self.bodies else self.cut.statements).append(statement)
            self.first = None

    def end(self, i: int) -> int:
        """Where what stands before piece `i` ends, newlines left out."""
        while i > 0 and self.pieces[i - 1].kind == "newline":
            i -= 1
        return i

    def open(self, i: int) -> None:
        """A block's brace; one that nothing stands before opens a block of no kind."""
        first = i if self.first is None else self.first
        owner = Statement(first, max(first, self.end(i)))
        owner.body = Body(first, i, block_context(self.pieces[first].text), self.indent(first))
        (self.bodies[-1].statements if self.bodies else self.cut.statements).append(owner)
        self.bodies.append(owner.body)
        self.first = None

    def close(self, i: int) -> None:
        """A brace that closes a block, if one is open."""
        if self.trust is Trust.INDENT and self.starts_line(i):
            column, depth = self.indent(i), len(self.bodies)
            while depth and column < self.bodies[depth - 1].indent:
                depth -= 1
            self.leave(depth, i)
            if self.bodies and column > self.bodies[-1].indent:
                self.cut.stray.append(i)
                return
        if not self.bodies:
            self.cut.stray.append(i)
            return
        self.bodies[-1].close, self.bodies[-1].end = i, i + 1
        self.bodies.pop()


def cut(text: str, given: Sequence[Piece], trust: Trust) -> Cut:
    """Blocks and statements of a text."""
    return Cutter(text, given, trust, brackets(given)).run()
