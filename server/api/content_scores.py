"""Which tokens of an answer are content: told by reading it once more, token by token."""

from __future__ import annotations

from collections import deque

from ..dialects.channels import Kind, Parser
from ..engine.scores import Scored
from ..text.answer import Delta


class ContentScores:
    """Reads the deltas of one choice, in order; markup, reasoning and calls are left out."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        # Text that belongs to `_tokens`, which have the character at which each begins.
        self._text = ""
        self._at = 0
        self._tokens: deque[tuple[Scored, int]] = deque()
        # Tokens, with their texts, of which it is not known what they are.
        self._open: list[tuple[Scored, str]] = []
        self._run = 0
        self._in_content = False

    def push(self, delta: Delta) -> list[tuple[int, Scored]]:
        """The tokens of content that are certain, each with the number of its run: content without others between."""
        self._text += delta.text
        self._tokens += zip(delta.tokens, delta.offsets, strict=True)
        out: list[tuple[int, Scored]] = []
        while self._tokens:
            last = len(self._tokens) == 1
            end = self._at + len(self._text) if last else self._tokens[1][1]
            if (last or end > self._at + len(self._text)) and delta.finish is None:
                break
            token, _ = self._tokens.popleft()
            text, self._text = self._text[: end - self._at], self._text[end - self._at :]
            self._at = end
            self._open.append((token, text))
            out += self._read(text, last)
        return out

    def _read(self, text: str, last: bool) -> list[tuple[int, Scored]]:
        pieces = self._parser.push(text)
        if last:
            pieces += self._parser.finish(cut=True)
        out: list[tuple[int, Scored]] = []
        for piece in pieces:
            if piece.kind is Kind.CONTENT:
                out += [(self._run, token) for token in self._end_of(piece.text)]
            elif self._in_content:
                self._run += 1
            self._in_content = piece.kind is Kind.CONTENT
        if pieces:
            self._open = []
        return out

    def _end_of(self, content: str) -> list[Scored]:
        """The last of the open tokens that wrote `content`; those before them are markup."""
        at, tail = len(self._open), ""
        while at and not tail.endswith(content):
            tail = self._open[at - 1][1] + tail
            if not (tail.endswith(content) or content.endswith(tail)):
                break
            at -= 1
        taken, self._open = [token for token, _ in self._open[at:]], self._open[:at]
        return taken
