"""An answer's text taken apart: reasoning, content, tool calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Protocol

from attrs import field, frozen


class Kind(Enum):
    """Which part of a message a piece belongs to."""

    REASONING = "reasoning"
    CONTENT = "content"
    # A call begins; the text is the function's name.
    CALL = "call"
    # More of the JSON text of the last call's arguments.
    ARGUMENTS = "arguments"


@frozen
class Piece:
    """More of one part of a message."""

    kind: Kind
    text: str


class Parser(Protocol):
    """Reads one answer. All pieces together are the same for every way of cutting the text."""

    @property
    def spans(self) -> Sequence[tuple[int, int | None]]:
        """Where reasoning begins and ends, in characters of the text; None where it has not ended."""

    def push(self, text: str) -> list[Piece]:
        """The pieces that are certain with `text`."""

    def finish(self, cut: bool) -> list[Piece]:
        """What was held back. `cut`: the answer ended by its limit, and what is incomplete stays so."""


@frozen
class Message:
    """A whole answer; `calls` are names and JSON texts."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[tuple[str, str], ...] = field(default=())


def fold(pieces: Iterable[Piece]) -> Message:
    """The message that pieces make."""
    texts: dict[Kind, list[str]] = {Kind.REASONING: [], Kind.CONTENT: []}
    calls: list[tuple[str, list[str]]] = []
    for piece in pieces:
        if piece.kind is Kind.CALL:
            calls.append((piece.text, []))
        elif piece.kind is Kind.ARGUMENTS:
            calls[-1][1].append(piece.text)
        else:
            texts[piece.kind].append(piece.text)
    return Message(
        reasoning="".join(texts[Kind.REASONING]),
        content="".join(texts[Kind.CONTENT]),
        calls=tuple((name, "".join(parts)) for name, parts in calls),
    )


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    """The same pieces with neighbours of a kind made one, and empty ones left out."""
    out: list[Piece] = []
    for piece in pieces:
        if piece.kind is Kind.CALL or not out or out[-1].kind is not piece.kind:
            out.append(piece)
        else:
            out[-1] = Piece(piece.kind, out[-1].text + piece.text)
    return [piece for piece in out if piece.text or piece.kind is Kind.CALL]


def reasoning_tokens(offsets: Iterable[int], spans: Sequence[tuple[int, int | None]]) -> int:
    """How many tokens begin inside of reasoning, given the character at which each begins."""
    return sum(any(start <= at and (end is None or at < end) for start, end in spans) for at in offsets)


class Plain:
    """A model that marks nothing: all is content."""

    spans: Sequence[tuple[int, int | None]] = ()

    def push(self, text: str) -> list[Piece]:
        """The text."""
        return [Piece(Kind.CONTENT, text)] if text else []

    def finish(self, cut: bool) -> list[Piece]:
        """Nothing is held back."""
        return []


def partial(text: str, *markers: str) -> int:
    """How many characters at the end of `text` may be the beginning of a marker."""
    longest = max(map(len, markers)) - 1
    for length in range(min(longest, len(text)), 0, -1):
        if any(marker.startswith(text[-length:]) and length < len(marker) for marker in markers):
            return length
    return 0
