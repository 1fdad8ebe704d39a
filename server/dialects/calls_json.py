"""Calls as JSON: `{"name": …, "arguments": {…}}` inside of `<tool_call>` (Qwen3, Hermes)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from typing import Any

from attrs import field, frozen

from .channels import Kind, Piece, partial
from .tagged import CALL, CALLED

_NAME = r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")'
_BEGIN = re.compile(_NAME, re.S)
_HEAD = re.compile(_NAME + r'\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=[{\[])', re.S)

# Between two calls in one tag. A bracket too many is markup.
_NEXT = re.compile(r"[\s}]*,?\s*(?=\{)")
_PADDING = re.compile(r"[\s}]*,?\s*")

# Characters in which the name of a call must have come.
_FAR = 256


@frozen
class JsonCalls:
    """How these calls are read; `names` are those of the tools. `held`: a grammar holds the answer to its form."""

    names: Collection[str] = field(factory=tuple, repr=False)
    held: bool = False
    bare: None = None

    def parser(self, opener: str) -> JsonCall:
        """A parser for what follows `opener`."""
        return JsonCall(opener)

    def begins(self, text: str) -> bool | None:
        """Whether a text behind `<tool_call>` begins a call of a known tool; None where it may still."""
        found = _BEGIN.match(text)
        if found is not None:
            return not self.held and _loads(found[1]) in self.names
        start = text.lstrip()
        return None if len(start) < _FAR and start[:1] in ("", "{") and "<" not in start and not self.held else False


class _Brackets:
    """Follows the brackets of JSON from its first one on."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self.at = 0

    def find_end(self, text: str) -> int | None:
        """Where the first bracket is closed, or a `<` outside of a string ends what is no JSON; `text` only grows."""
        for at in range(self.at, len(text)):
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
        self.at = len(text)
        return None


class JsonCall:
    """Reads the calls behind one `<tool_call>`; arguments are passed on as they come once the name is known."""

    def __init__(self, opener: str = CALL) -> None:
        self._opener = opener
        self._held = ""
        self._state: Callable[[], bool] = self._head
        self._brackets = _Brackets()
        self._out: list[Piece] = []
        self._closed = False

    def push(self, text: str) -> tuple[list[Piece], str | None]:
        """The pieces that are certain, and, once the calls are over, the text behind them."""
        self._held += text
        while not self._closed and self._state():
            pass
        out, self._out = self._out, []
        return out, self._held if self._closed else None

    def finish(self, cut: bool) -> list[Piece]:
        """A call that was not closed: a whole one counts, other text is content unless the answer was cut."""
        if self._state != self._head:
            return []
        return _whole(self._held) or ([] if cut else [Piece(Kind.CONTENT, self._opener + self._held)])

    def _head(self) -> bool:
        start = self._held.lstrip()
        if start and start[0] not in "{[":
            return self._give_back(0)
        head = _HEAD.match(self._held)
        if head is not None and (name := _loads(head[1])) is not None:
            self._out.append(Piece(Kind.CALL, name))
            self._held = self._held[head.end() :]
            self._enter(self._arguments)
            return True
        end = self._brackets.find_end(self._held)
        if end is None:
            return False
        calls = _whole(self._held[:end])
        if not calls:
            return self._give_back(end)
        self._out += calls
        self._held = self._held[end:]
        self._enter(self._between)
        return True

    def _arguments(self) -> bool:
        """Up to the bracket that closes the first one."""
        end = self._brackets.find_end(self._held)
        at = len(self._held) if end is None else end
        self._out.append(Piece(Kind.ARGUMENTS, self._held[:at]))
        self._held = self._held[at:]
        self._brackets.at -= at
        if end is None:
            return False
        # The bracket that the arguments are in is open.
        self._held = "{" + self._held
        self._enter(self._rest)
        return True

    def _rest(self) -> bool:
        """The rest of the object that the arguments are in."""
        end = self._brackets.find_end(self._held)
        if end is None:
            return False
        self._held = self._held[end:]
        self._enter(self._between)
        return True

    def _between(self) -> bool:
        """Behind a call: its closing tag, or another call, with a tag or without, or text."""
        padding = _PADDING.match(self._held)
        start = self._held[padding.end() if padding else 0 :]
        for tag in (CALLED, CALL):
            if start.startswith(tag):
                self._held, self._opener, self._closed = start[len(tag) :], CALL, tag == CALLED
                self._enter(self._head)
                return True
        if _NEXT.match(self._held):
            self._opener = ""
            self._enter(self._head)
            self._held = start
            return True
        if partial(start, CALLED, CALL) == len(start):
            return False
        self._held = self._held.lstrip("}")
        self._closed = True
        return True

    def _give_back(self, end: int) -> bool:
        """What is no call is content up to `end`; what follows is read again."""
        self._out.append(Piece(Kind.CONTENT, self._opener + self._held[:end]))
        self._held = self._held[end:]
        self._closed = True
        return True

    def _enter(self, state: Callable[[], bool]) -> None:
        self._state, self._brackets = state, _Brackets()


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
