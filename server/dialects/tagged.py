"""Answers in which `<think>` and `<tool_call>` mark what is not content, as Qwen's models write them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from ..engine.grammar import MARKUP
from .channels import Kind, Piece, TextBuffer, joined, partial

THINK, THOUGHT, CALL, CALLED = MARKUP


class CallParser(Protocol):
    """Reads calls, from behind `<tool_call>` on. Content among its pieces is text that turned out to be no call."""

    def read(self) -> tuple[list[Piece], bool]:
        """The pieces that are certain with what is held, and whether the calls are over."""

    def finish(self, cut: bool) -> list[Piece]:
        """What was held back of a call that was not closed."""


class Calls(Protocol):
    """How calls are written."""

    @property
    def bare(self) -> str | None:
        """What begins a call without `<tool_call>`, where something does."""

    def parser(self, buffer: TextBuffer, opener: str) -> CallParser:
        """A parser for what follows `opener`, which is `<tool_call>`, or nothing where a call begins without."""

    def begins(self, text: str, at: int) -> bool | None:
        """Whether a text begins a call of a known tool at a place; None where it may still."""


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
        self._buffer = TextBuffer()
        self._marker = re.compile("|".join(self._markers) or "(?!)")
        self._end = re.compile(THOUGHT if calls is None else f"{THOUGHT}|{CALL}")
        self._call: CallParser | None = None
        self._out: list[Piece] = []
        # White space around calls, which is text once there is more behind it and there was some before it.
        self._gap = ""
        self._has_content = self._called = False
        self._state: Callable[[bool], bool] = self._begin if thinks else self._content
        if opened:
            self._think()

    def push(self, text: str) -> list[Piece]:
        """The pieces that are certain with `text`."""
        self._buffer.push(text)
        while self._buffer and self._state(False):
            pass
        return self._take_out()

    def finish(self, cut: bool) -> list[Piece]:
        """What was held back."""
        while self._buffer and self._state(True):
            pass
        if self._call is not None:
            self._take(self._call.finish(cut))
        return self._take_out()

    def _take_out(self) -> list[Piece]:
        out, self._out = self._out, []
        return joined(out)

    def _give(self, kind: Kind, text: str) -> None:
        self._out.append(Piece(kind, text))

    def _skip(self, then: Callable[[bool], bool]) -> bool:
        """Drop leading line breaks; go on where there is something else."""
        while self._buffer and self._buffer.text[self._buffer.at] == "\n":
            self._buffer.at += 1
        if self._buffer:
            self._state = then
        return bool(self._buffer)

    def _begin(self, final: bool) -> bool:
        """The very beginning, where it is open whether the model thinks."""
        start = self._buffer.solid()
        if self._buffer.text.startswith(THINK, start):
            self._buffer.at = start + len(THINK)
            self._think()
            return True
        if THINK.startswith(self._buffer.text[start : start + len(THINK)]) and not final:
            return False
        self._state = self._content
        return True

    def _think(self) -> None:
        self.spans.append((self._buffer.read, None))
        self._state = lambda final: self._skip(self._thinking)

    def _thinking(self, final: bool) -> bool:
        buffer = self._buffer
        match = self._end.search(buffer.text, buffer.at)
        if match is None:
            markers, markup = ((THOUGHT,), "\n") if self._calls is None else ((THOUGHT, CALL), None)
            self._give(Kind.REASONING, buffer.take(len(buffer.text) if final else self._certain(markers, markup)))
            return False
        if match.group() == THOUGHT or self._calls is None:
            self._leave(match.start(), "\n")
            buffer.at = match.end()
            self._state = lambda final: self._skip(self._content)
            return True
        begins = self._calls.begins(buffer.text, match.end())
        if begins:
            self._leave(match.start(), None)
            self._state = self._content
        elif begins is None and not final:
            self._give(Kind.REASONING, buffer.take(self._stripped(match.start(), None)))
            return False
        else:  # it thinks about calls
            self._give(Kind.REASONING, buffer.take(match.end()))
        return True

    def _leave(self, at: int, markup: str | None) -> None:
        """End reasoning at a marker, before which some white space is markup."""
        text = self._buffer.take(at)
        self.spans[-1] = (self.spans[-1][0], self._buffer.read)
        self._give(Kind.REASONING, text.rstrip(markup))

    def _content(self, final: bool) -> bool:
        buffer = self._buffer
        if self._calls is None:
            self._give(Kind.CONTENT, buffer.take(len(buffer.text)))
            return False
        match = self._marker.search(buffer.text, buffer.at)
        if match is None:
            self._say(buffer.take(len(buffer.text) if final else self._certain(self._markers, None)))
            return False
        begins = True if match.group() == CALL else self._calls.begins(buffer.text, match.start())
        if begins is None and not final:
            self._say(buffer.take(self._stripped(match.start(), None)))
            return False
        if not begins:
            self._say(buffer.take(match.end()))
            return True
        before = buffer.take(match.start())
        text = before.rstrip()
        self._say(text)
        self._gap += before[len(text) :]
        opener = buffer.take(match.end()) if match.group() == CALL else ""
        self._call, self._state = self._calls.parser(buffer, opener), self._calling
        return bool(buffer)

    def _say(self, text: str) -> None:
        """Content, and the white space that was held back before it."""
        if self._called:
            start = text.lstrip()
            self._gap += text[: len(text) - len(start)]
            if not start:
                return
            text = (self._gap if self._has_content else "") + start
        else:
            text = self._gap + text
        self._gap, self._called = "", False
        self._has_content = self._has_content or bool(text)
        self._give(Kind.CONTENT, text)

    def _certain(self, markers: tuple[str, ...], markup: str | None) -> int:
        """Up to where what is held cannot be markup."""
        text = self._buffer.text
        end = text[max(self._buffer.at, len(text) - max(map(len, markers))) :]
        return self._stripped(len(text) - partial(end, *markers), markup)

    def _stripped(self, end: int, markup: str | None) -> int:
        """The end of what is held before a place without white space at its end."""
        return self._buffer.at + len(self._buffer.text[self._buffer.at : end].rstrip(markup))

    def _calling(self, final: bool) -> bool:
        assert self._call is not None
        pieces, over = self._call.read()
        self._take(pieces)
        if over:
            self._call, self._state = None, self._content
        return over

    def _take(self, pieces: list[Piece]) -> None:
        """What a call's parser gives."""
        for piece in pieces:
            if piece.kind is Kind.CONTENT:
                self._say(piece.text)
            else:
                self._called = True
                self._out.append(piece)
