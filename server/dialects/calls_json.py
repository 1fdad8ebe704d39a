"""Calls as JSON: `{"name": …, "arguments": {…}}` inside of `<tool_call>` (Qwen3, Hermes)."""

from __future__ import annotations

import json
import re
from typing import Any

from .channels import Kind, Piece
from .tagged import CALL, CALLED

_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=[{\[])', re.S)


class JsonCall:
    """Reads one call; its arguments are passed on as they come once the name is known."""

    def __init__(self) -> None:
        self._held = ""
        self._state = self._head
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._out: list[Piece] = []

    def push(self, text: str) -> tuple[list[Piece], str | None]:
        """The pieces that are certain, and, once the call is closed, the text behind it."""
        self._held += text
        rest = self._state()
        out, self._out = self._out, []
        return out, rest

    def finish(self, cut: bool) -> list[Piece]:
        """A call that was not closed: a whole one counts, other text is content unless the answer was cut."""
        if self._state != self._head:
            return []
        return _whole(self._held) or ([] if cut else [Piece(Kind.CONTENT, CALL + self._held)])

    def _head(self) -> str | None:
        closing = self._held.find(CALLED)
        head = _HEAD.match(self._held, 0, closing if closing >= 0 else len(self._held))
        if head is not None and (name := _loads(head[1])) is not None:
            self._out.append(Piece(Kind.CALL, name))
            self._held = self._held[head.end() :]
            self._state = self._arguments
            return self._arguments()
        inside, closed, rest = self._held.partition(CALLED)
        if not closed:
            return None
        self._out += _whole(inside) or [Piece(Kind.CONTENT, CALL + inside + closed)]
        return rest

    def _arguments(self) -> str | None:
        """Up to the bracket that closes the first one; a `<` outside of a string ends what is no JSON."""
        for at, char in enumerate(self._held):
            if self._in_string:
                self._in_string = self._escaped or char != '"'
                self._escaped = char == "\\" and not self._escaped
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
            if self._depth == 0 or (char == "<" and not self._in_string):
                return self._end(at + (char != "<"))
        self._out.append(Piece(Kind.ARGUMENTS, self._held))
        self._held = ""
        return None

    def _end(self, at: int) -> str | None:
        self._out.append(Piece(Kind.ARGUMENTS, self._held[:at]))
        self._held = self._held[at:]
        self._state = self._tail
        return self._tail()

    def _tail(self) -> str | None:
        _, closed, rest = self._held.partition(CALLED)
        return rest if closed else None


def _whole(text: str) -> list[Piece]:
    """The call that a JSON text is, whatever the order of its fields; nothing if it is none."""
    value = _loads(text)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return []
    arguments: Any = next((value[key] for key in ("arguments", "parameters") if value.get(key) is not None), {})
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return [Piece(Kind.CALL, value["name"]), Piece(Kind.ARGUMENTS, written)]


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
