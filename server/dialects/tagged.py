"""Answers in which `<think>` and `<tool_call>` mark what is not content, as Qwen's models write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .channels import Kind, Piece, joined, partial

THINK, THOUGHT = "<think>", "</think>"
CALL, CALLED = "<tool_call>", "</tool_call>"
MARKUP = (THINK, THOUGHT, CALL, CALLED)


class CallParser(Protocol):
    """Reads one call, from behind `<tool_call>`."""

    def push(self, text: str) -> tuple[list[Piece], str | None]:
        """The pieces that are certain, and, once the call is closed, the text behind it."""

    def finish(self, cut: bool) -> list[Piece]:
        """What was held back of a call that was not closed."""


class TaggedParser:
    """Reasoning at the beginning, then content, between which there may be calls.

    Line breaks next to `<think>` and `</think>` and white space around calls are markup. `opened`: the prompt has the
    `<think>`; `calls` makes a parser for each call, None where calls are text like any other.
    """

    def __init__(self, *, thinks: bool, opened: bool = False, calls: Callable[[], CallParser] | None = None) -> None:
        self.spans: list[tuple[int, int | None]] = []
        self._calls = calls
        self._held = ""
        self._at = 0
        self._call: CallParser | None = None
        self._out: list[Piece] = []
        self._state: Callable[[bool], bool] = self._begin if thinks else self._content
        if opened:
            self._think()

    def push(self, text: str) -> list[Piece]:
        """The pieces that are certain with `text`."""
        self._held += text
        while self._held and self._state(False):
            pass
        return self._given()

    def finish(self, cut: bool) -> list[Piece]:
        """What was held back."""
        while self._held and self._state(True):
            pass
        if self._call is not None:
            self._out += self._call.finish(cut)
        return self._given()

    def _given(self) -> list[Piece]:
        out, self._out = self._out, []
        return joined(out)

    def _eat(self, count: int) -> str:
        eaten, self._held = self._held[:count], self._held[count:]
        self._at += count
        return eaten

    def _give(self, kind: Kind, text: str) -> None:
        self._out.append(Piece(kind, text))

    def _skip(self, what: str, then: Callable[[bool], bool]) -> bool:
        """Drop leading characters; go on where there are others."""
        self._eat(len(self._held) - len(self._held.lstrip(what)))
        if self._held:
            self._state = then
        return bool(self._held)

    def _begin(self, final: bool) -> bool:
        """The very beginning, where it is open whether the model thinks."""
        start = self._held.lstrip()
        if start.startswith(THINK):
            self._eat(len(self._held) - len(start) + len(THINK))
            self._think()
            return True
        if THINK.startswith(start) and not final:
            return False
        self._state = self._content
        return True

    def _think(self) -> None:
        self.spans.append((self._at, None))
        self._state = lambda final: self._skip("\n", self._thinking)

    def _thinking(self, final: bool) -> bool:
        at = self._held.find(THOUGHT)
        if at >= 0:
            self.spans[-1] = (self.spans[-1][0], self._at + at)
            self._give(Kind.REASONING, self._eat(at).rstrip("\n"))
            self._eat(len(THOUGHT))
            self._state = lambda final: self._skip("\n", self._content)
            return True
        self._give(Kind.REASONING, self._eat(len(self._held) if final else self._certain(THOUGHT, "\n")))
        return False

    def _content(self, final: bool) -> bool:
        at = self._held.find(CALL) if self._calls is not None else -1
        if at >= 0 and self._calls is not None:
            self._give(Kind.CONTENT, self._eat(at).rstrip())
            self._eat(len(CALL))
            self._call, self._state = self._calls(), self._calling
            return True
        whole = final or self._calls is None
        self._give(Kind.CONTENT, self._eat(len(self._held) if whole else self._certain(CALL, None)))
        return False

    def _certain(self, marker: str, markup: str | None) -> int:
        """How much of what is held cannot be markup."""
        return len(self._held[: len(self._held) - partial(self._held, marker)].rstrip(markup))

    def _calling(self, final: bool) -> bool:
        assert self._call is not None
        pieces, rest = self._call.push(self._eat(len(self._held)))
        self._out += pieces
        if rest is None:
            return False
        self._held = rest
        self._at -= len(rest)
        self._call, self._state = None, lambda final: self._skip(" \t\r\n", self._content)
        return True
