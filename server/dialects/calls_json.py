"""Calls as JSON: `{"name": …, "arguments": {…}}` inside of `<tool_call>` (Qwen3, Hermes)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from typing import Any

from attrs import field, frozen

from .channels import Kind, Piece, TextBuffer, partial, solid
from .tagged import CALL, CALLED

_NAME = r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.){0,1024}")'
_BEGIN = re.compile(_NAME, re.S)
_HEAD = re.compile(_NAME + r'\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=[{\[])', re.S)

# Between two calls in one tag. A bracket too many is markup.
_PADDING = re.compile(r"[\s}]*,?\s*")

# Characters in which the name of a call must have come.
_FAR = 256


@frozen
class JsonCalls:
    """How these calls are read; `names` are those of the tools.

    `constrained`: a grammar holds the answer to its form.
    """

    names: Collection[str] = field(factory=tuple, repr=False)
    constrained: bool = False
    bare: None = None

    def parser(self, buffer: TextBuffer, opener: str) -> JsonCall:
        """A parser for what follows `opener`."""
        return JsonCall(buffer, opener)

    def begins(self, text: str, at: int) -> bool | None:
        """Whether a text behind `<tool_call>` begins a call of a known tool; None where it may still."""
        if self.constrained:
            return False
        match = _BEGIN.match(text, at)
        if match is not None:
            return _loads(match[1]) in self.names
        begin = solid(text, at)
        start = text[begin : begin + _FAR]
        return None if len(start) < _FAR and start[:1] in ("", "{") and "<" not in start else False


class _Brackets:
    """Follows the brackets of JSON from its first one on."""

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._in_string = False
        self._escaped = False
        # How much of what is held was looked at.
        self._seen = 0

    def find_end(self, buffer: TextBuffer) -> int | None:
        """Where the first bracket is closed, or a `<` outside of a string ends what is no JSON; nothing is taken."""
        text = buffer.text
        for at in range(buffer.at + self._seen, len(text)):
            char = text[at]
            if self._in_string:
                self._in_string = self._escaped or char != '"'
                self._escaped = char == "\\" and not self._escaped
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
            if not self._in_string and (char == "<" or (self._depth == 0 and char in "}]")):
                return at + (char != "<")
        self._seen = len(text) - buffer.at
        return None

    def taken(self) -> None:
        """All that was looked at is held no more."""
        self._seen = 0


class JsonCall:
    """Reads the calls behind one `<tool_call>`; arguments are passed on as they come once the name is known."""

    def __init__(self, buffer: TextBuffer, opener: str = CALL) -> None:
        self._buffer = buffer
        self._opener = opener
        self._state: Callable[[], bool] = self._head
        self._brackets = _Brackets()
        self._out: list[Piece] = []
        self._closed = False

    def read(self) -> tuple[list[Piece], bool]:
        """The pieces that are certain, and whether the calls are over."""
        while not self._closed and self._state():
            pass
        out, self._out = self._out, []
        return out, self._closed

    def finish(self, cut: bool) -> list[Piece]:
        """A call that was not closed: a whole one counts, other text is content unless the answer was cut."""
        if self._state != self._head:
            return []
        rest = self._buffer.rest()
        return _whole(rest) or ([] if cut else [Piece(Kind.CONTENT, self._opener + rest)])

    def _head(self) -> bool:
        buffer = self._buffer
        start = buffer.solid()
        if start < len(buffer.text) and buffer.text[start] not in "{[":
            return self._give_back(buffer.at)
        head = _HEAD.match(buffer.text, buffer.at)
        if head is not None and (name := _loads(head[1])) is not None:
            self._out.append(Piece(Kind.CALL, name))
            buffer.at = head.end()
            self._enter(self._arguments)
            return True
        end = self._brackets.find_end(buffer)
        if end is None:
            return False
        calls = _whole(buffer.text[buffer.at : end])
        if not calls:
            return self._give_back(end)
        self._out += calls
        buffer.at = end
        self._enter(self._between)
        return True

    def _arguments(self) -> bool:
        """Up to the bracket that closes the first one."""
        end = self._brackets.find_end(self._buffer)
        self._out.append(Piece(Kind.ARGUMENTS, self._buffer.take(len(self._buffer.text) if end is None else end)))
        self._brackets.taken()
        if end is None:
            return False
        # The bracket that the arguments are in is open.
        self._enter(self._rest, 1)
        return True

    def _rest(self) -> bool:
        """The rest of the object that the arguments are in."""
        end = self._brackets.find_end(self._buffer)
        if end is None:
            return False
        self._buffer.at = end
        self._enter(self._between)
        return True

    def _between(self) -> bool:
        """Behind a call: its closing tag, or another call, with a tag or without, or text."""
        buffer = self._buffer
        padding = _PADDING.match(buffer.text, buffer.at)
        start = padding.end() if padding else buffer.at
        for tag in (CALLED, CALL):
            if buffer.text.startswith(tag, start):
                buffer.at, self._opener, self._closed = start + len(tag), CALL, tag == CALLED
                self._enter(self._head)
                return True
        if buffer.text.startswith("{", start):
            buffer.at, self._opener = start, ""
            self._enter(self._head)
            return True
        next_tag = buffer.text[start : start + len(CALLED)]
        if partial(next_tag, CALLED, CALL) == len(next_tag):
            return False
        while buffer.text.startswith("}", buffer.at):
            buffer.at += 1
        self._closed = True
        return True

    def _give_back(self, end: int) -> bool:
        """What is no call is content up to `end`; what follows is read again."""
        self._out.append(Piece(Kind.CONTENT, self._opener + self._buffer.take(end)))
        self._closed = True
        return True

    def _enter(self, state: Callable[[], bool], depth: int = 0) -> None:
        self._state, self._brackets = state, _Brackets(depth)


def _whole(text: str) -> list[Piece]:
    """The calls that a JSON text is, whatever the order of their fields; nothing if it is none."""
    value = _loads(text)
    calls = value if isinstance(value, list) else [value]
    if not all(isinstance(call, dict) and isinstance(call.get("name"), str) for call in calls):
        return []
    out = []
    for call in calls:
        arguments: Any = next((call[key] for key in ("arguments", "parameters") if call.get(key) is not None), {})
        written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        out += [Piece(Kind.CALL, call["name"]), Piece(Kind.ARGUMENTS, written)]
    return out


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
