"""Answers in which `<think>` and `<tool_call>` mark what is not content, as Qwen's models write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .channels import Kind, Piece, joined, partial

THINK, THOUGHT = "<think>", "</think>"
CALL, CALLED = "<tool_call>", "</tool_call>"
MARKUP = (THINK, THOUGHT, CALL, CALLED)


class CallParser(Protocol):
    """Reads calls, from behind `<tool_call>` on. Content among its pieces is text that turned out to be no call."""

    def push(self, text: str) -> tuple[list[Piece], str | None]:
        """The pieces that are certain, and, once the calls are over, the text behind them."""

    def finish(self, cut: bool) -> list[Piece]:
        """What was held back of a call that was not closed."""


class Calls(Protocol):
    """How calls are written."""

    @property
    def bare(self) -> str | None:
        """What begins a call without `<tool_call>`, where something does."""

    def parser(self, opener: str) -> CallParser:
        """A parser for what follows `opener`, which is `<tool_call>`, or nothing where a call begins without."""

    def begins(self, text: str) -> bool | None:
        """Whether a text begins a call of a known tool; None where it may still."""


class TaggedParser:
    """Reasoning at the beginning, then content, between which there may be calls.

    Line breaks next to `<think>` and `</think>` are markup, and so is white space around calls unless there is text on
    both sides. A call of a known tool ends reasoning that was left open. `opened`: the prompt has the `<think>`;
    `calls` is how calls are written, None where they are text like any other.
    """

    def __init__(self, *, thinks: bool, opened: bool = False, calls: Calls | None = None) -> None:
        self.spans: list[tuple[int, int | None]] = []
        self._calls = calls
        self._markers = () if calls is None else (CALL,) if calls.bare is None else (CALL, calls.bare)
        self._held = ""
        self._at = 0
        self._call: CallParser | None = None
        self._out: list[Piece] = []
        # White space around calls, which is text once there is more behind it and there was some before it.
        self._gap = ""
        self._said = self._called = False
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
            self._take(self._call.finish(cut))
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
        call = -1 if self._calls is None else self._held.find(CALL, 0, len(self._held) if at < 0 else at)
        if call >= 0 and self._calls is not None:
            begins = self._calls.begins(self._held[call + len(CALL) :])
            if begins:
                self._leave(call, None)
                self._state = self._content
            elif begins is None and not final:
                self._give(Kind.REASONING, self._eat(len(self._held[:call].rstrip())))
                return False
            else:  # it thinks about calls
                self._give(Kind.REASONING, self._eat(call + len(CALL)))
            return True
        if at >= 0:
            self._leave(at, "\n")
            self._eat(len(THOUGHT))
            self._state = lambda final: self._skip("\n", self._content)
            return True
        markers, markup = ((THOUGHT,), "\n") if self._calls is None else ((THOUGHT, CALL), None)
        self._give(Kind.REASONING, self._eat(len(self._held) if final else self._certain(markers, markup)))
        return False

    def _leave(self, at: int, markup: str | None) -> None:
        """End reasoning at a marker, before which some white space is markup."""
        self.spans[-1] = (self.spans[-1][0], self._at + at)
        self._give(Kind.REASONING, self._eat(at).rstrip(markup))

    def _content(self, final: bool) -> bool:
        if self._calls is None:
            self._give(Kind.CONTENT, self._eat(len(self._held)))
            return False
        found = [(self._held.find(marker), marker) for marker in self._markers if marker in self._held]
        if not found:
            self._say(self._eat(len(self._held) if final else self._certain(self._markers, None)))
            return False
        at, marker = min(found)
        begins = True if marker == CALL else self._calls.begins(self._held[at:])
        if begins is None and not final:
            self._say(self._eat(len(self._held[:at].rstrip())))
            return False
        if not begins:
            self._say(self._eat(at + len(marker)))
            return True
        before = self._eat(at)
        text = before.rstrip()
        self._say(text)
        self._gap += before[len(text) :]
        opener = self._eat(len(CALL)) if marker == CALL else ""
        self._call, self._state = self._calls.parser(opener), self._calling
        return bool(self._held)

    def _say(self, text: str) -> None:
        """Content, and the white space that was held back before it."""
        if self._called:
            start = text.lstrip()
            self._gap += text[: len(text) - len(start)]
            if not start:
                return
            text = (self._gap if self._said else "") + start
        else:
            text = self._gap + text
        self._gap, self._called = "", False
        self._said = self._said or bool(text)
        self._give(Kind.CONTENT, text)

    def _certain(self, markers: tuple[str, ...], markup: str | None) -> int:
        """How much of what is held cannot be markup."""
        return len(self._held[: len(self._held) - partial(self._held, *markers)].rstrip(markup))

    def _calling(self, final: bool) -> bool:
        assert self._call is not None
        pieces, rest = self._call.push(self._eat(len(self._held)))
        self._take(pieces)
        if rest is None:
            return False
        self._held = rest
        self._at -= len(rest)
        self._call, self._state = None, self._content
        return True

    def _take(self, pieces: list[Piece]) -> None:
        """What a call's parser gives."""
        for piece in pieces:
            if piece.kind is Kind.CONTENT:
                self._say(piece.text)
            else:
                self._called = True
                self._out.append(piece)
