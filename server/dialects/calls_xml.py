"""Calls as markup: `<function=f>` and `<parameter=k>` inside of `<tool_call>` (Qwen3.8)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

from .channels import Kind, Piece, TextBuffer, partial, solid
from .tagged import CALL, CALLED

FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"

# What opens and closes a value, and what a parameter's name is, for the grammar as for the parser.
VALUE_OPEN, VALUE_CLOSE = ">\n", f"\n{PARAMETER_END}\n"
KEY = r"[^<>\n]{1,128}"

_FUNCTION = re.compile(rf"\s*{FUNCTION}([^<>\n]*)>")
_NEXT = re.compile(rf"{PARAMETER}({KEY})>|{FUNCTION_END}|{FUNCTION}|{CALL}|{CALLED}")

# Characters in which the name of a call must have come.
_FAR = 256

_CLOSE = re.compile(re.escape(VALUE_CLOSE))
# Where no grammar holds the model, a value also ends where it forgot a line break or to close it: before a tag that is
# at its place.
_LOOSE = re.compile(
    rf"{VALUE_CLOSE}|\n?{PARAMETER_END}(?=\s*(?:{PARAMETER}{KEY}>|{FUNCTION_END}|{CALLED}))"
    rf"|\n(?={PARAMETER}{KEY}>)|\n?(?={FUNCTION_END}\s*{CALLED})|\n(?={CALLED})"
)
_TAGS = (PARAMETER, PARAMETER_END, FUNCTION, FUNCTION_END, CALL, CALLED)
_PREFIXES = "|".join(re.escape(tag[:end]) for tag in _TAGS for end in range(len(tag), 0, -1))
# The end of a text that may become one of these ends.
_OPEN_END = re.compile(
    rf"\n?(?:(?:{PARAMETER_END}|{FUNCTION_END})\s*)?(?:{PARAMETER}[^<>\n]{{0,128}}|{_PREFIXES})?\Z|\n?{PARAMETER_END}\n?\Z"
)
# A value that was closed at the very end of the answer.
_LAST = re.compile(rf"\n?{PARAMETER_END}\s*\Z")


@frozen
class XmlCalls:
    """How these calls are read; `schemas` are the parameters of the tools by name.

    `constrained`: a grammar holds the answer to its form, so nothing else is taken for it.
    """

    schemas: Mapping[str, Mapping[str, Any]] = field(repr=False)
    constrained: bool = False

    @property
    def bare(self) -> str | None:
        """What begins a call of a known tool without `<tool_call>`."""
        return None if self.constrained else FUNCTION

    def parser(self, buffer: TextBuffer, opener: str) -> XmlCall:
        """A parser for what follows `opener`."""
        return XmlCall(buffer, self.schemas, opener, strict=self.constrained)

    def begins(self, text: str, at: int) -> bool | None:
        """Whether a text behind `<tool_call>` begins a call of a known tool; None where it may still."""
        if self.constrained:
            return False
        match = _FUNCTION.match(text, at)
        if match is not None:
            return match[1].strip() in self.schemas
        return None if _may_begin(text, at) else False


def _may_begin(text: str, at: int) -> bool:
    """Whether a text may become the head of a call."""
    begin = solid(text, at)
    start = text[begin : begin + 2 * _FAR]
    return FUNCTION.startswith(start) or bool(re.fullmatch(rf"{FUNCTION}[^<>\n]{{0,{_FAR}}}", start))


class ArgumentWriter:
    """Writes arguments as JSON while their values come as text.

    Values that are strings by the tool's schema, or of which it says nothing, are passed on as they come. So where a
    name comes twice its first value stays: a stream has sent it, and a whole answer says the same as a stream.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        properties = schema.get("properties")
        self._properties = properties if isinstance(properties, dict) else {}
        self._names: set[str] = set()
        # The value is another one of a name that has its value.
        self._again = False
        self._types: frozenset[str] = frozenset()
        self._value: list[str] = []

    def key(self, name: str, types: frozenset[str] | None = None) -> str:
        """A key; `types`, where the answer itself says of which type its value is."""
        self._types = types_of(self._properties.get(name), self._schema) if types is None else types
        self._value = []
        self._again = name in self._names
        if self._again:
            return ""
        start = ", " if self._names else "{"
        self._names.add(name)
        return f"{start}{_dump(name)}: " + ('"' if self._streams else "")

    def more(self, text: str) -> str:
        """More of the value."""
        if self._again:
            return ""
        if self._streams:
            return _dump(text)[1:-1]
        self._value.append(text)
        return ""

    def end_value(self) -> str:
        """The end of the value."""
        if self._again:
            return ""
        return '"' if self._streams else _dump(typed("".join(self._value), self._types))

    def end(self) -> str:
        """The end of all arguments."""
        return "}" if self._names else "{}"

    @property
    def _streams(self) -> bool:
        return self._types <= {"string"}


class XmlCall:
    """Reads the calls behind one `<tool_call>`; `schemas` are the parameters of the tools by name."""

    def __init__(
        self, buffer: TextBuffer, schemas: Mapping[str, Mapping[str, Any]], opener: str, *, strict: bool
    ) -> None:
        self._buffer = buffer
        self._schemas = schemas
        self._opener = opener
        self._ends = _CLOSE if strict else _LOOSE
        self._writer = ArgumentWriter({})
        self._state: Callable[[], bool] = self._function
        self._out: list[Piece] = []
        self._closed = False

    def read(self) -> tuple[list[Piece], bool]:
        """The pieces that are certain, and whether the calls are over."""
        while self._buffer and not self._closed and self._state():
            pass
        out, self._out = self._out, []
        return out, self._closed

    def finish(self, cut: bool) -> list[Piece]:
        """A call that was not closed: closed here unless the answer was cut; without a name it is content."""
        rest = self._buffer.rest()
        if self._state == self._function:
            return [] if cut else [Piece(Kind.CONTENT, self._opener + rest)]
        if self._state == self._value:
            last = _LAST.search(rest)
            self._write(self._writer.more(rest[: last.start()] if last else rest))
            if last or not cut:
                self._write(self._writer.end_value())
        if self._state != self._between and not cut:
            self._write(self._writer.end())
        return self._out

    def _write(self, text: str) -> None:
        self._out.append(Piece(Kind.ARGUMENTS, text))

    def _function(self) -> bool:
        head = _FUNCTION.match(self._buffer.text, self._buffer.at)
        if head is not None:
            name = head[1].strip()
            self._out.append(Piece(Kind.CALL, name))
            self._writer = ArgumentWriter(self._schemas.get(name, {}))
            self._buffer.at = head.end()
            self._state = self._parameter
        elif not _may_begin(self._buffer.text, self._buffer.at):
            self._out.append(Piece(Kind.CONTENT, self._opener))
            self._closed = True
        return head is not None

    def _parameter(self) -> bool:
        """Between values: another one, or the end, or another call where this one was not closed."""
        buffer = self._buffer
        match = _NEXT.search(buffer.text, buffer.at)
        if match is None:
            # No tag begins before the last of these.
            buffer.at = max(buffer.text.rfind("<", buffer.at), buffer.at)
            return False
        key = match[1]
        if key is not None and match.end() == len(buffer.text):
            # One more character tells whether a line break follows the tag.
            return False
        if key is not None:
            self._write(self._writer.key(key.strip()))
            buffer.at = match.end() + buffer.text.startswith("\n", match.end())
            self._state = self._value
        else:
            self._write(self._writer.end())
            buffer.at = match.end() if match.group() == FUNCTION_END else match.start()
            self._state = self._between
        return True

    def _value(self) -> bool:
        buffer = self._buffer
        end = self._ends.search(buffer.text, buffer.at)
        if end is not None:
            self._write(self._writer.more(buffer.take(end.start())))
            buffer.at = end.end()
            self._write(self._writer.end_value())
            self._state = self._parameter
            return True
        open_end = _OPEN_END.search(buffer.text, buffer.at)
        self._write(self._writer.more(buffer.take(open_end.start() if open_end else len(buffer.text))))
        return False

    def _between(self) -> bool:
        """Behind a call: its closing tag, or another call, with a tag or without, or text."""
        buffer = self._buffer
        start = buffer.solid()
        tag = buffer.starts(CALLED, CALL, FUNCTION)
        if tag is not None:
            self._opener = CALL if tag == CALL else ""
            self._closed = tag == CALLED
            buffer.at = start if tag == FUNCTION else start + len(tag)
            self._state = self._function
            return True
        after = buffer.text[start : start + len(CALLED)]
        self._closed = partial(after, CALLED, CALL, FUNCTION) < len(after)
        return False


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
        value = json.loads(
            {"True": "true", "False": "false", "None": "null"}.get(stripped, stripped), parse_constant=_refuse
        )
        _dump(value, finite=True)
    except (ValueError, RecursionError):
        return text
    fits = set(_OF_VALUE[type(value)]) & types
    return value if fits and not ("string" in types and isinstance(value, str)) else text


def _refuse(name: str) -> None:
    """NaN and infinities, which are no JSON. Raises `ValueError`."""
    raise ValueError(name)


def _dump(value: Any, *, finite: bool = False) -> str:
    """JSON. `finite`: raises `ValueError` for a number that is beyond all floats, which JSON cannot write."""
    return json.dumps(value, ensure_ascii=False, allow_nan=not finite)
