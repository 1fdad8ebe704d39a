"""Values as JSON: small ones at once, large ones in pieces between which other threads run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from starlette.responses import Response

# Characters of a string, or items of a list, that are written at once.
_BLOCK = 2**16

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False).encode


def dump(value: Any) -> bytes:
    """Compact JSON in UTF-8; what JSON has no word for is an error."""
    return _encode(value).encode()


def dump_large(value: Any) -> bytes:
    """The same bytes. No other thread waits long for it, whatever the size of the value."""
    return b"".join(piece.encode() for piece in _pieces(value))


def _pieces(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        start = "{"
        for key, item in value.items():
            yield f"{start}{_encode(key)}:"
            yield from _pieces(item)
            start = ","
        yield "{}" if start == "{" else "}"
    elif isinstance(value, list | tuple):
        yield "["
        for at in range(0, len(value), _BLOCK):
            yield "," if at else ""
            yield from _items(value[at : at + _BLOCK])
        yield "]"
    elif isinstance(value, str) and len(value) > _BLOCK:
        yield '"'
        for at in range(0, len(value), _BLOCK):
            yield _encode(value[at : at + _BLOCK])[1:-1]
        yield '"'
    else:
        yield _encode(value)


def _items(values: list[Any] | tuple[Any, ...]) -> Iterator[str]:
    if set(map(type, values)) <= {int, float, bool, type(None)}:
        yield _encode(values)[1:-1]
        return
    for at, value in enumerate(values):
        yield "," if at else ""
        yield from _pieces(value)


class JsonResponse(Response):
    """A JSON body; what JSON has no word for is an error, not `NaN`."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Compact UTF-8."""
        return dump(content)


class RawJson(Response):
    """JSON that is written already."""

    media_type = "application/json"
