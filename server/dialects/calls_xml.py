"""Calls as markup: `<function=f>` and `<parameter=k>` inside of `<tool_call>` (Qwen3.8)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from .channels import Kind, Piece, partial
from .tagged import CALL, CALLED

_FUNCTION = re.compile(r"\s*<function=([^>]*)>")
_NEXT = re.compile(r"\s*(?:<parameter=([^>]*)>|</function>)")
# A value ends here, also where the model forgot to close it.
_ENDS = ("</parameter>", "<parameter=", "</function>", CALLED)
_END = re.compile("|".join(map(re.escape, _ENDS)))


class ArgumentWriter:
    """Writes arguments as JSON while their values come as text.

    Values that are strings by the tool's schema, or of which it says nothing, are passed on as they come.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        properties = schema.get("properties")
        self._properties = properties if isinstance(properties, dict) else {}
        self._begun = False
        self._types: frozenset[str] = frozenset()
        self._value: list[str] = []

    def key(self, name: str, types: frozenset[str] | None = None) -> str:
        """A key; `types`, where the answer itself says of which type its value is."""
        self._types = types_of(self._properties.get(name), self._schema) if types is None else types
        self._value = []
        start = ", " if self._begun else "{"
        self._begun = True
        return f"{start}{_dump(name)}: " + ('"' if self._streams else "")

    def more(self, text: str) -> str:
        """More of the value."""
        if self._streams:
            return _dump(text)[1:-1]
        self._value.append(text)
        return ""

    def end_value(self) -> str:
        """The end of the value."""
        return '"' if self._streams else _dump(typed("".join(self._value), self._types))

    def end(self) -> str:
        """The end of all arguments."""
        return "}" if self._begun else "{}"

    @property
    def _streams(self) -> bool:
        return self._types <= {"string"}


class XmlCall:
    """Reads one call; `schemas` are the parameters of the tools by name."""

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self._schemas = schemas
        self._writer = ArgumentWriter({})
        self._held = ""
        self._state: Callable[[], bool] = self._function
        self._out: list[Piece] = []
        self._closed = False

    def push(self, text: str) -> tuple[list[Piece], str | None]:
        """The pieces that are certain, and, once the call is closed, the text behind it."""
        self._held += text
        while self._held and not self._closed and self._state():
            pass
        out, self._out = self._out, []
        return out, self._held if self._closed else None

    def finish(self, cut: bool) -> list[Piece]:
        """A call that was not closed: closed here unless the answer was cut; without a name it is content."""
        if self._state == self._function:
            return [] if cut else [Piece(Kind.CONTENT, CALL + self._held)]
        if self._state == self._value:
            self._write(self._writer.more(self._held))
            if not cut:
                self._write(self._writer.end_value())
        if self._state != self._tail and not cut:
            self._write(self._writer.end())
        return self._out

    def _write(self, text: str) -> None:
        self._out.append(Piece(Kind.ARGUMENTS, text))

    def _function(self) -> bool:
        head = _FUNCTION.match(self._held)
        closed = self._held.find(CALLED)
        if head is not None and (closed < 0 or head.end() <= closed):
            name = head[1].strip()
            self._out.append(Piece(Kind.CALL, name))
            self._writer = ArgumentWriter(self._schemas.get(name, {}))
            self._held = self._held[head.end() :]
            self._state = self._parameter
        elif closed >= 0:
            self._out.append(Piece(Kind.CONTENT, CALL + self._held[: closed + len(CALLED)]))
            self._close(closed)
        return head is not None

    def _parameter(self) -> bool:
        """Between values: another one, or the end."""
        closed = self._held.find(CALLED)
        found = _NEXT.search(self._held, 0, len(self._held) if closed < 0 else closed)
        if found is None and closed >= 0:
            self._write(self._writer.end())
            self._close(closed)
        elif found is not None and found[1] is None:
            self._write(self._writer.end())
            self._held = self._held[found.end() :]
            self._state = self._tail
        elif found is not None and (closed >= 0 or found.end() < len(self._held)):
            # One more character is there, so a line break behind the tag is seen.
            self._write(self._writer.key(found[1].strip()))
            self._held = self._held[found.end() :].removeprefix("\n")
            self._state = self._value
        else:
            return False
        return True

    def _value(self) -> bool:
        end = _END.search(self._held)
        at = end.start() if end else len(self._held) - partial(self._held, *_ENDS)
        if end is None and self._held[:at].endswith("\n"):
            at -= 1
        text, self._held = self._held[:at], self._held[at:]
        self._write(self._writer.more(text.removesuffix("\n") if end else text))
        if end is None:
            return False
        self._write(self._writer.end_value())
        self._held = self._held.removeprefix(_ENDS[0])
        self._state = self._parameter
        return True

    def _tail(self) -> bool:
        closed = self._held.find(CALLED)
        if closed >= 0:
            self._close(closed)
        return False

    def _close(self, at: int) -> None:
        self._held = self._held[at + len(CALLED) :]
        self._closed = True


_OF_VALUE: dict[type, tuple[str, ...]] = {
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
    str: ("string",),
    dict: ("object",),
    list: ("array",),
    type(None): ("null",),
}


def types_of(schema: Any, root: Mapping[str, Any], depth: int = 8) -> frozenset[str]:
    """The JSON types that a parameter may have; none where its schema does not say. References lead into `root`."""
    if not isinstance(schema, dict) or not depth:
        return frozenset()
    given = schema.get("type")
    if isinstance(given, str):
        return frozenset([given])
    if isinstance(given, list):
        return frozenset(item for item in given if isinstance(item, str))
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(values, list):
        return frozenset(_OF_VALUE[type(value)][0] for value in values if type(value) in _OF_VALUE)
    options = schema.get("anyOf", schema.get("oneOf", schema.get("allOf")))
    if isinstance(options, list):
        return frozenset(name for option in options for name in types_of(option, root, depth - 1))
    if isinstance(schema.get("$ref"), str):
        target: Any = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target.get(step) if isinstance(target, Mapping) else None
        return types_of(target, root, depth - 1)
    return frozenset()


def typed(text: str, types: frozenset[str]) -> Any:
    """The value that a text stands for among `types`; the text itself where it is none of them."""
    stripped = text.strip()
    try:
        value = json.loads({"True": "true", "False": "false", "None": "null"}.get(stripped, stripped))
    except (ValueError, RecursionError):
        return text
    fits = set(_OF_VALUE[type(value)]) & types
    return value if fits and not ("string" in types and isinstance(value, str)) else text


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
