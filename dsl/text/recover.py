"""All errors of a file that does not parse, and the tree of what does."""

from __future__ import annotations

from typing import Any

from attrs import evolve, field
from lark import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ..diagnostics import Diagnostic, Label, ordered
from ..records import define
from ..source import Source, Span
from . import syntax as s
from .cut import Body, Cut, Statement, Trust, cut
from .forms import BLOCKS, CONTEXTS, WORDS, near
from .limits import DEEPEST_BLOCK, Refused
from .mistakes import Broken, Failure, diagnose, misplaced, refused
from .parser import comments, parse_as, version_problems
from .scan import Piece, pieces

# The field of a block's node that holds what stands between its braces.
_INSIDE = {s.Weights: "declarations", s.States: "declarations", s.Step: "body", s.For: "body"}


@define
class Recovery:
    """One reading of a file: its nodes, its errors, and the words of statements that gave no node."""

    source: Source
    pieces: list[Piece]
    cut: Cut
    diagnostics: list[Diagnostic] = field(factory=list)
    damaged: set[str] = field(factory=set)
    version: s.Number | None = None

    def run(self) -> tuple[s.TopLevel, ...]:
        """The nodes of the file."""
        self.braces()
        items = []
        for i, statement in enumerate(self.cut.statements):
            if self.pieces[statement.first].text == "mks" and i == 0 and statement.body is None:
                self.version = self.attempt(statement, "file", "version")
            else:
                items += self.statement(statement, "file", 0)
        return tuple(items)

    def span(self, start: int, end: int) -> Span:
        """A place in the source."""
        return Span(self.source, start, end)

    def broken(self, statement: Statement, context: str) -> Broken:
        """A statement for a message; newlines are no part of it."""
        given = [p for p in self.pieces[statement.first : statement.last] if p.kind != "newline"]
        return Broken(self.source, context, given)

    def spoil(self, first: int, last: int) -> None:
        """Remember the words among these pieces, so that errors which follow from the lost statement are not told."""
        self.damaged.update(p.text for p in self.pieces[first:last] if p.kind == "word")

    def braces(self) -> None:
        """Errors about the braces themselves."""
        together: dict[int, list[Body]] = {}
        for body, seen in self.cut.unclosed:
            together.setdefault(seen, []).append(body)
        for seen, bodies in together.items():
            self.unclosed(bodies, seen)
        for i in self.cut.stray:
            piece = self.pieces[i]
            label = Label(self.span(piece.start, piece.end))
            self.diagnostics.append(Diagnostic("E014", "this `}` closes nothing", label, helps=("leave it out",)))
        for i in self.cut.late:
            piece = self.pieces[i]
            label = Label(self.span(piece.start, piece.end))
            helps = ("put it at the end of the line before",)
            self.diagnostics.append(Diagnostic("E018", "`{` cannot begin a line", label, helps=helps))
        for i in self.cut.crowded:
            piece = self.pieces[i]
            label = Label(self.span(piece.start, piece.end))
            helps = ("each statement has its own line",)
            self.diagnostics.append(
                Diagnostic("E021", "a statement begins after a `}` on the same line", label, helps=helps)
            )

    def unclosed(self, bodies: list[Body], seen: int) -> None:
        """Blocks that are found open at the same place, innermost first."""
        inner, *outer = [self.pieces[body.open] for body in bodies]
        first = self.pieces[bodies[0].first]
        second = self.pieces[bodies[0].first + 1 : bodies[0].open]
        name = f" {second[0].text}" if second and second[0].kind == "word" else ""
        others = [Label(self.span(p.start, p.end), "this one is not closed either") for p in outer[:DEEPEST_BLOCK]]
        if seen < len(self.pieces):
            piece = self.pieces[seen]
            others.append(Label(self.span(piece.start, piece.end), "`}` is missing before this"))
        else:  # what the file was to say further is not known
            for body in bodies:
                self.spoil(body.first, body.open)
        message = f"{len(bodies)} blocks are not closed" if outer else f"`{first.text}{name}` is not closed"
        label = Label(self.span(inner.start, inner.end), "has no `}`")
        self.diagnostics.append(Diagnostic("E011", message, label, tuple(others)))

    def statement(self, statement: Statement, context: str, depth: int) -> list[Any]:
        """The node of a statement, or nothing and a diagnostic."""
        if statement.body is None:
            node = self.attempt(statement, context, CONTEXTS[context][1]) if context in CONTEXTS else None
            return [] if node is None else [node]
        return self.block(statement, statement.body, context, depth)

    def block(self, statement: Statement, body: Body, context: str, depth: int) -> list[Any]:
        """A block: its head, and what stands between its braces."""
        if depth >= DEEPEST_BLOCK:
            brace = self.pieces[body.open]
            label = Label(self.span(brace.start, brace.end))
            message = f"blocks are nested more than {DEEPEST_BLOCK} deep"
            self.diagnostics.append(Diagnostic("E006", message, label, helps=("no definition needs that",)))
            self.spoil(statement.first, body.end)
            return []
        node = self.head(statement, body, context)
        inside = [x for each in body.statements for x in self.statement(each, body.context, depth + 1)]
        if node is None:
            self.spoil(statement.first, body.end)
            return []
        if body.close is not None:
            end = self.pieces[body.close].end
        else:
            end = max([self.pieces[body.open].end, *(item.span.end for item in inside)])
        start = self.pieces[statement.first].start
        name = _INSIDE.get(type(node), "items")
        return [evolve(node, span=self.span(start, end), **{name: tuple(inside)})]

    def head(self, statement: Statement, body: Body, context: str) -> Any:
        """A block's node with nothing inside; a misspelt first word is told and read as what was meant."""
        first = self.pieces[statement.first]
        if body.context == "unknown" or context not in CONTEXTS:
            if context in CONTEXTS:
                self.diagnostics.append(self.unknown(statement, body, context))
            return None
        if first.text in BLOCKS and first.text not in WORDS[context]:
            self.diagnostics.append(misplaced(self.broken(statement, context)))
            return None
        meant = near(first.text, WORDS[context]) if first.text not in BLOCKS else None
        if meant is None or BLOCKS.get(meant) != body.context:
            return self.attempt(statement, context, CONTEXTS[context][1], " { }")
        label = Label(self.span(first.start, first.end))
        message = f"`{first.text}` does not begin a statement of {CONTEXTS[context][0]}"
        self.diagnostics.append(Diagnostic("E019", message, label, helps=(f"did you mean `{meant}`?",)))
        end = self.pieces[statement.last - 1].end
        base = first.end - len(meant)
        try:
            return parse_as(CONTEXTS[context][1], self.source, meant + self.source.text[first.end : end] + " { }", base)
        except (UnexpectedInput, Refused):
            return None

    def unknown(self, statement: Statement, body: Body, context: str) -> Diagnostic:
        """A block that begins with no word of the language."""
        brace, called = self.pieces[body.open], CONTEXTS[context][0]
        first = self.pieces[statement.first]
        if statement.first == body.open:
            return Diagnostic(
                "E010", "a block needs a keyword before its `{`", Label(self.span(brace.start, brace.end))
            )
        known = sorted(word for word in WORDS[context] if word in BLOCKS)
        helps = (f"{called} holds the blocks {', '.join(f'`{word}`' for word in known)}",) if known else ()
        message = f"`{first.text}` is not a block of {called}"
        return Diagnostic("E019", message, Label(self.span(first.start, first.end)), helps=helps)

    def attempt(self, statement: Statement, context: str, start: str, behind: str = "") -> Any:
        """Parse a statement, or a block's head with `behind` as its body; what is wrong with it is told."""
        begin, end = self.pieces[statement.first].start, self.pieces[statement.last - 1].end
        text = self.source.text[begin:end]
        try:
            return parse_as(start, self.source, text + behind, begin)
        except Refused as e:
            self.damaged.update(e.refusal.words)
            self.diagnostics.append(refused(self.broken(statement, context), e.refusal, begin))
        except UnexpectedInput as e:
            failure = _failure(e, begin, end)
            self.diagnostics.append(diagnose(self.broken(statement, context), failure))
        self.spoil(statement.first, statement.last)
        return None


def _failure(error: UnexpectedInput, begin: int, end: int) -> Failure:
    """What the parser says, with offsets in the file."""
    if isinstance(error, UnexpectedToken):
        parser: Any = error.interactive_parser
        accepts = frozenset(parser.accepts()) if parser is not None else frozenset(error.expected)
        token = error.token
        at = begin + (token.start_pos or 0)
        if token.type != "$END" and at < end:
            return Failure(token.type, at, at + len(token), accepts)
        return Failure("$END", end, end, accepts)
    at = begin + (error.pos_in_stream or 0) if isinstance(error, UnexpectedCharacters) else end
    return Failure("", at, at + 1, frozenset())


def _read(source: Source, given: list[Piece], trust: Trust) -> tuple[Recovery, tuple[s.TopLevel, ...]]:
    recovery = Recovery(source, given, cut(source.text, given, trust))
    return recovery, recovery.run()


def recover(source: Source) -> tuple[s.File, list[Diagnostic]]:
    """The statements that parse, and a diagnostic for each that does not.

    Where braces are missing or too many, the reading that leaves the fewest errors is taken.
    """
    given = pieces(source.text)
    recovery, items = _read(source, given, Trust.BRACES)
    if recovery.cut.unclosed or recovery.cut.stray:
        for trust in (Trust.INDENT, Trust.WORDS):
            other = _read(source, given, trust)
            more = len(other[0].diagnostics) - len(recovery.diagnostics)
            if more < 0 or (more == 0 and trust is Trust.INDENT):
                recovery, items = other
    words = recovery.damaged
    problems = version_problems(source, recovery.version)
    if any(d.code == "E002" for d in problems):  # another version may mean anything by the rest
        diagnostics, items, words = problems, (), {p.text for p in given if p.kind == "word"}
    else:
        began = bool(given) and given[0].text == "mks"  # then a bad version line has been told
        diagnostics = [*recovery.diagnostics, *([] if began else problems)]
    file = s.File(source, recovery.version, items, comments(source), frozenset(words))
    return file, list(ordered(diagnostics or _whole(source)))


def _whole(source: Source) -> list[Diagnostic]:
    """What the parser says about the whole file, for a text whose statements all parse alone."""
    try:
        parse_as("file", source, source.text, 0)
    except Refused as e:
        return [refused(Broken(source, "file", ()), e.refusal, 0)]
    except UnexpectedInput as e:
        failure = _failure(e, 0, len(source.text))
        label = Label(Span(source, failure.start, failure.end))
        return [Diagnostic("E010", "this is not allowed after the text before it", label)]
    return []
