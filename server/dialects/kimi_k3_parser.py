"""Kimi K3's answers: a state machine over the markers, which takes every way in which the model leaves a channel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Any

from .calls_xml import ArgumentWriter
from .channels import Kind, Piece, joined

# Half surrogates: no text decodes to them, so nothing but a marker's token is one.
OPEN, CLOSE, SEP, END = MARKS = ("\ud801", "\ud802", "\ud803", "\ud804")

_MARK = re.compile("[\ud801-\ud804]")
_ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')

# What a value is by its `type`; one that is not known is text.
_TYPES: dict[str, tuple[str, ...]] = {
    "number": ("integer", "number"),
    "integer": ("integer", "number"),
    "boolean": ("boolean",),
    "null": ("null",),
    "object": ("object",),
    "array": ("array",),
}


class Channel(Enum):
    """Where text goes."""

    REASONING = "think"
    CONTENT = "response"
    # Between elements: white space is markup, other text is content.
    BETWEEN = "between"
    # Inside of a call, outside of its arguments.
    CALL = "call"
    ARGUMENT = "argument"
    JSON = "json"
    OVER = "over"


class XtmlParser:
    """Reads an answer whose channel `opened` the prompt has opened; without `calls`, those are left out."""

    def __init__(self, opened: Channel | None, schemas: Mapping[str, Mapping[str, Any]], *, calls: bool) -> None:
        self.spans: list[tuple[int, int | None]] = []
        self._schemas = schemas
        self._calls = calls
        self._at = 0
        # The text of a tag that is not complete, from its marker on.
        self._tag: str | None = None
        self._writer = ArgumentWriter({})
        self._json = False
        # White space between elements, as long as nothing else came there.
        self._between = ""
        self._channel = Channel.BETWEEN
        self._out: list[Piece] = []
        if opened is not None:
            self._go(opened)

    def push(self, text: str) -> list[Piece]:
        """The pieces that are certain with `text`."""
        start = 0
        for mark in _MARK.finditer(text):
            self._text(text[start : mark.start()])
            self._mark(mark.group())
            self._at += 1
            start = mark.end()
        self._text(text[start:])
        return self._take_out()

    def finish(self, cut: bool) -> list[Piece]:
        """Close what is open, unless the answer was cut."""
        if not cut:
            self._leave_call()
        return self._take_out()

    def _take_out(self) -> list[Piece]:
        out, self._out = self._out, []
        return joined(piece for piece in out if self._calls or piece.kind in (Kind.REASONING, Kind.CONTENT))

    def _text(self, text: str) -> None:
        self._at += len(text)
        if self._tag is not None:
            self._tag += text
        elif self._channel is Channel.REASONING:
            self._out.append(Piece(Kind.REASONING, text))
        elif self._channel is Channel.CONTENT:
            self._out.append(Piece(Kind.CONTENT, text))
        elif self._channel is Channel.BETWEEN:
            # Text that no channel was opened for is meant as a response.
            self._between += text
            if text.strip():
                self._out.append(Piece(Kind.CONTENT, self._between))
                self._go(Channel.CONTENT)
        elif self._channel is Channel.ARGUMENT:
            self._write(self._writer.more(text))
        elif self._channel is Channel.JSON:
            self._write(text)

    def _mark(self, mark: str) -> None:
        if mark == SEP:
            if self._tag is not None:
                self._element(self._tag)
            self._tag = None
        elif mark == END:
            self._leave_call()
            self._go(Channel.OVER)
        elif self._channel is not Channel.OVER:
            self._tag = mark

    def _element(self, tag: str) -> None:
        name, _, rest = tag[1:].partition(" ")
        if tag[0] == CLOSE:
            self._close(name)
        else:
            values = {
                key: value.replace("&quot;", '"').replace("&amp;", "&") for key, value in _ATTRIBUTE.findall(rest)
            }
            self._open(name, values)

    def _open(self, name: str, values: dict[str, str]) -> None:
        if name in ("think", "response", "tools", "message"):
            self._leave_call()
            self._go({"think": Channel.REASONING, "response": Channel.CONTENT}.get(name, Channel.BETWEEN))
        elif name == "call":
            self._leave_call()
            tool = values.get("tool", "")
            self._out.append(Piece(Kind.CALL, tool))
            self._writer, self._json = ArgumentWriter(self._schemas.get(tool, {})), False
            self._go(Channel.CALL)
        elif name == "argument" and self._channel in (Channel.CALL, Channel.ARGUMENT):
            self._leave_value()
            types = frozenset(_TYPES.get(values.get("type", "string"), ()))
            self._write(self._writer.key(values.get("key", ""), types))
            self._go(Channel.ARGUMENT)
        elif name == "json" and self._channel is Channel.CALL:
            self._json = True
            self._go(Channel.JSON)

    def _close(self, name: str) -> None:
        if name in ("argument", "json"):
            self._leave_value()
        elif name == "message":
            self._leave_call()
            self._go(Channel.OVER)
        elif name in ("think", "response", "tools", "call"):
            self._leave_call()
            self._go(Channel.BETWEEN)

    def _leave_value(self) -> None:
        if self._channel is Channel.ARGUMENT:
            self._write(self._writer.end_value())
        if self._channel in (Channel.ARGUMENT, Channel.JSON):
            self._go(Channel.CALL)

    def _leave_call(self) -> None:
        self._leave_value()
        if self._channel is Channel.CALL:
            if not self._json:
                self._write(self._writer.end())
            self._go(Channel.BETWEEN)

    def _write(self, text: str) -> None:
        self._out.append(Piece(Kind.ARGUMENTS, text))

    def _go(self, channel: Channel) -> None:
        if self._channel is Channel.REASONING and channel is not Channel.REASONING:
            begun, _ = self.spans[-1]
            # The tag that leaves is no reasoning.
            self.spans[-1] = (begun, self._at - len(self._tag or ""))
        elif channel is Channel.REASONING and self._channel is not Channel.REASONING:
            self.spans.append((self._at + (self._tag is not None), None))
        self._channel, self._between = channel, ""
