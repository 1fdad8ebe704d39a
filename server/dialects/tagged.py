"""Answers in which `<think>` and `<tool_call>` mark what is not content, as Qwen's models write them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from ..engine.grammar import MARKUP
from .channels import Held, Kind, Piece, joined, partial

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

    def parser(self, held: Held, opener: str) -> CallParser:
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
        self._held = Held()
        self._marker = re.compile("|".join(self._markers) or "(?!)")
        self._end = re.compile(THOUGHT if calls is None else f"{THOUGHT}|{CALL}")
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
        self._held.push(text)
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

    def _give(self, kind: Kind, text: str) -> None:
        self._out.append(Piece(kind, text))

    def _skip(self, then: Callable[[bool], bool]) -> bool:
        """Drop leading line breaks; go on where there is something else."""
        while self._held and self._held.text[self._held.at] == "\n":
            self._held.at += 1
        if self._held:
            self._state = then
        return bool(self._held)

    def _begin(self, final: bool) -> bool:
        """The very beginning, where it is open whether the model thinks."""
        start = self._held.solid()
        if self._held.text.startswith(THINK, start):
            self._held.at = start + len(THINK)
            self._think()
            return True
        if THINK.startswith(self._held.text[start : start + len(THINK)]) and not final:
            return False
        self._state = self._content
        return True

    def _think(self) -> None:
        self.spans.append((self._held.read, None))
        self._state = lambda final: self._skip(self._thinking)

    def _thinking(self, final: bool) -> bool:
        held = self._held
        found = self._end.search(held.text, held.at)
        if found is None:
            markers, markup = ((THOUGHT,), "\n") if self._calls is None else ((THOUGHT, CALL), None)
            self._give(Kind.REASONING, held.take(len(held.text) if final else self._certain(markers, markup)))
            return False
        if found.group() == THOUGHT or self._calls is None:
            self._leave(found.start(), "\n")
            held.at = found.end()
            self._state = lambda final: self._skip(self._content)
            return True
        begins = self._calls.begins(held.text, found.end())
        if begins:
            self._leave(found.start(), None)
            self._state = self._content
        elif begins is None and not final:
            self._give(Kind.REASONING, held.take(self._stripped(found.start(), None)))
            return False
        else:  # it thinks about calls
            self._give(Kind.REASONING, held.take(found.end()))
        return True

    def _leave(self, at: int, markup: str | None) -> None:
        """End reasoning at a marker, before which some white space is markup."""
        text = self._held.take(at)
        self.spans[-1] = (self.spans[-1][0], self._held.read)
        self._give(Kind.REASONING, text.rstrip(markup))

    def _content(self, final: bool) -> bool:
        held = self._held
        if self._calls is None:
            self._give(Kind.CONTENT, held.take(len(held.text)))
            return False
        found = self._marker.search(held.text, held.at)
        if found is None:
            self._say(held.take(len(held.text) if final else self._certain(self._markers, None)))
            return False
        begins = True if found.group() == CALL else self._calls.begins(held.text, found.start())
        if begins is None and not final:
            self._say(held.take(self._stripped(found.start(), None)))
            return False
        if not begins:
            self._say(held.take(found.end()))
            return True
        before = held.take(found.start())
        text = before.rstrip()
        self._say(text)
        self._gap += before[len(text) :]
        opener = held.take(found.end()) if found.group() == CALL else ""
        self._call, self._state = self._calls.parser(held, opener), self._calling
        return bool(held)

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
        """Up to where what is held cannot be markup."""
        text = self._held.text
        end = text[max(self._held.at, len(text) - max(map(len, markers))) :]
        return self._stripped(len(text) - partial(end, *markers), markup)

    def _stripped(self, end: int, markup: str | None) -> int:
        """The end of what is held before a place without white space at its end."""
        return self._held.at + len(self._held.text[self._held.at : end].rstrip(markup))

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
