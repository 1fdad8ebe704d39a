"""An answer's text taken apart: reasoning, content, tool calls."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import groupby
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
    for kind, run in groupby(pieces, lambda piece: piece.kind):
        if kind is Kind.CALL:
            out += run
        elif text := "".join(piece.text for piece in run):
            out.append(Piece(kind, text))
    return out


def reasoning_tokens(offsets: Iterable[int], spans: Sequence[tuple[int, int | None]]) -> int:
    """How many tokens begin inside of reasoning, given the character at which each begins; spans are in order."""
    starts = [start for start, _ in spans]
    ends = [math.inf if end is None else end for _, end in spans]
    return sum(bool(spans) and at < ends[bisect_right(starts, at) - 1] and at >= starts[0] for at in offsets)


class TextBuffer:
    """Text that came and was not read yet: `text` from `at` on. Reading moves `at` and copies nothing."""

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self._dropped = 0

    def push(self, text: str) -> None:
        """More text. Places in what was held before are void."""
        self._dropped += self.at
        self.text, self.at = self.text[self.at :] + text, 0

    def __bool__(self) -> bool:
        return self.at < len(self.text)

    @property
    def read(self) -> int:
        """How many characters were read in all."""
        return self._dropped + self.at

    def take(self, end: int) -> str:
        """What is held before a place."""
        taken = self.text[self.at : end]
        self.at = end
        return taken

    def rest(self) -> str:
        """All that is held."""
        return self.text[self.at :]

    def starts(self, *markers: str) -> str | None:
        """Which marker is behind white space, if one is."""
        at = self.solid()
        return next((marker for marker in markers if self.text.startswith(marker, at)), None)

    def solid(self) -> int:
        """Where leading white space ends."""
        return solid(self.text, self.at)


def solid(text: str, at: int) -> int:
    """Where white space that begins at a place ends."""
    space = _SPACE.match(text, at)
    return space.end() if space else at


_SPACE = re.compile(r"\s*")


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
