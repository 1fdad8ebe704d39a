"""Cutting any text into words and signs, whether it follows the grammar or not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_PIECE = re.compile(
    r"""(?P<newline>\n)
      | (?P<space>[ \t\r]+)
      | (?P<comment>\#[^\n]*)
      | (?P<string>"[^"\n]*")
      | (?P<open>"[^\n]*)
      | (?P<number>[0-9]+(?:x[0-9]+)+ | [0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
      | (?P<word>[^\W\d]\w*)
      | (?P<sign>\*\*|//|\.\.|->|==|!=|<=|>=|[-+*/%@=<>:,.;(){}\[\]])
      | (?P<other>.)""",
    re.VERBOSE,
)


class Piece(NamedTuple):
    """`kind` is newline, string, open (a text without its closing quote), number, word, sign or other."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        """Offset behind the last character."""
        return self.start + len(self.text)


def pieces(text: str) -> list[Piece]:
    """Everything but spaces and comments."""
    result = []
    for match in _PIECE.finditer(text):
        kind = str(match.lastgroup)
        if kind not in ("space", "comment"):
            result.append(Piece(kind, match[0].rstrip("\r") if kind == "open" else match[0], match.start()))
    return result


_CLOSER = {")": "(", "]": "[", "}": "{"}


def is_lambda(given: Sequence[Piece], at: int) -> bool:
    """Whether the brace at `at` opens a function's body, `{ e -> …`, rather than a block."""
    name = _next(given, at)
    arrow = _next(given, name)
    return arrow < len(given) and given[name].kind == "word" and given[arrow].text == "->"


def _next(given: Sequence[Piece], at: int) -> int:
    """The piece behind one, newlines left out."""
    at += 1
    while at < len(given) and given[at].kind == "newline":
        at += 1
    return at


def brackets(given: Sequence[Piece]) -> dict[int, int]:
    """For each bracket and function body that is closed, where.

    A block's brace ends all that is open, so that one missing bracket spoils one statement.
    """
    pairs: dict[int, int] = {}
    opened: list[int] = []
    count = {"(": 0, "[": 0, "{": 0}
    for i, piece in enumerate(given):
        text = piece.text
        if piece.kind != "sign":
            continue
        if text in "([" or (text == "{" and is_lambda(given, i)):
            opened.append(i)
            count[text] += 1
        elif text in _CLOSER and count[_CLOSER[text]] and not _ends_block(given, i, opened):
            while True:
                at = opened.pop()
                count[given[at].text] -= 1
                if given[at].text == _CLOSER[text]:
                    break
            pairs[at] = i
        elif text in "{}":
            opened.clear()
            count = dict.fromkeys(count, 0)
    return pairs


def _ends_block(given: Sequence[Piece], at: int, opened: Sequence[int]) -> bool:
    """A `}` that begins its line ends a block, unless round brackets are open around the function's body."""
    first = at == 0 or given[at - 1].kind == "newline"
    return given[at].text == "}" and first and given[opened[0]].text == "{"
