"""A file as the formatter sees it: statements and comments in blocks, each with the words that it was written with."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import field

from ..records import define, frozen
from ..source import Source
from .parser import comments, grammar


@frozen
class Word:
    """A token or a comment. `breaks` tells whether it begins a line, `blank` whether an empty one stands before it."""

    kind: str
    text: str
    breaks: bool
    blank: bool


@define
class Block:
    """What stands between braces; `opening` and `closing` are comments beside them."""

    context: str
    entries: list[Entry]
    opening: str | None = None
    closing: str | None = None


@define
class Entry:
    """A statement, or, without words, a comment on a line of its own (in `comment`)."""

    words: list[Word] = field(factory=list)
    comment: str | None = None
    block: Block | None = None
    blank: bool = False


_CONTEXTS = {
    "MODEL": "model",
    "SCHEDULE": "schedule",
    "SPECULATE": "speculate",
    "PART": "part",
    "STEP": "step",
    "FOR": "step",
    "WEIGHTS": "weights",
    "STATE": "state",
    "CACHE": "state",
    "BUFFER": "state",
    "STREAM": "stream",
}


def words(source: Source) -> list[Word]:
    """The tokens and comments of a text that parses, and a `_NL` wherever a statement ends."""
    parser = grammar().parse_interactive(source.text, start="file")
    tokens = [(t.start_pos or 0, t.end_pos or 0, t.type, str(t)) for t in parser.iter_parse()]
    tokens += [(c.span.start, c.span.end, "COMMENT", c.text) for c in comments(source)]
    result, last = [], 0
    for start, end, kind, text in sorted(tokens):
        lines = source.text.count("\n", last, start)
        result.append(Word(kind, text, lines > 0 or last == 0, lines > 1))
        if kind != "_NL":
            last = end
    return result


@define
class Reader:
    """Goes over the words once."""

    words: list[Word]
    at: int = 0

    @property
    def kind(self) -> str:
        """The kind of the next word."""
        return self.words[self.at].kind if self.at < len(self.words) else "$END"

    def take(self) -> Word:
        """The next word."""
        self.at += 1
        return self.words[self.at - 1]

    def beside(self) -> str | None:
        """A comment in the same line, if one follows."""
        return self.take().text if self.kind == "COMMENT" and not self.words[self.at].breaks else None

    def entries(self) -> Iterator[Entry]:
        """Statements and comments until the block's end."""
        while self.kind not in ("RBRACE", "$END"):
            if self.kind == "_NL":
                self.take()
            elif self.kind == "COMMENT":
                word = self.take()
                yield Entry(comment=word.text, blank=word.blank)
            else:
                yield self.entry()

    def entry(self) -> Entry:
        """A statement with its block and the comment beside it."""
        entry = Entry(blank=self.words[self.at].blank)
        inside = 0  # functions' bodies
        while inside or self.kind not in ("_NL", "RBRACE", "$END"):
            if self.kind == "LBRACE":
                self.block(entry)
                return entry
            inside += (self.kind == "_LAMBDA") - (self.kind == "RBRACE")
            entry.words.append(self.take())
        if entry.words[-1].kind == "COMMENT":
            entry.comment = entry.words.pop().text
        return entry

    def block(self, owner: Entry) -> None:
        """A block; one that stands on one line stays there, as words of its statement."""
        start = self.at
        self.take()
        opening = self.beside()
        context = _CONTEXTS[owner.words[0].kind]
        inside = list(self.entries())
        brace = self.take()
        if inside and not any(word.breaks for word in self.words[start + 1 : self.at]):
            owner.words += self.words[start : self.at]
            owner.comment = self.beside()
            return
        if opening is None and not inside:
            owner.words += [Word("LBRACE", "{", False, False), Word("RBRACE", brace.text, False, False)]
            owner.comment = self.beside()
            return
        owner.block = Block(context, inside, opening, self.beside())


def layout(source: Source) -> list[Entry]:
    """The entries of a file that parses without errors."""
    return list(Reader(words(source)).entries())
