"""One choice's answer as it is read: pieces of a message from deltas, and what usage and the finish need to know."""

from __future__ import annotations

from ..dialects.channels import Kind, Parser, Piece, Plain, reasoning_tokens
from ..text.answer import Delta, Finish


class Reader:
    """Reads the deltas of one choice, in order."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._offsets: list[int] = []
        self.called = False
        # How many calls a stream has begun.
        self.calls = 0

    def push(self, delta: Delta) -> list[Piece]:
        """The pieces that a delta adds; with its last delta an answer is complete."""
        pieces = self._parser.push(delta.text)
        if self.thinks:
            self._offsets += delta.offsets
        if delta.finish is not None:
            pieces += self._parser.finish(cut=delta.finish is Finish.LENGTH)
        self.called = self.called or any(piece.kind is Kind.CALL for piece in pieces)
        return pieces

    @property
    def thinks(self) -> bool:
        """Whether the answer may have reasoning."""
        return not isinstance(self._parser, Plain)

    @property
    def reasoning(self) -> int:
        """How many tokens were reasoning."""
        return reasoning_tokens(self._offsets, self._parser.spans)
