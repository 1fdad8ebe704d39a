"""Schemas with less in them, for tools that need not be held to every word of theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .formats import FORMATS, LONGEST, search_pattern

_OF_SCHEMAS = frozenset(["properties", "patternProperties", "$defs", "definitions"])
_LISTS = frozenset(["anyOf", "allOf", "prefixItems"])
_INNER = frozenset(["items", "additionalProperties"])
_OUTLINE = frozenset(["type", "enum", "const", "required", "$ref"])
_BOUNDS = frozenset(
    "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minItems maxItems minProperties maxProperties".split()
)
# Schemas within one another; deeper ones say nothing.
_DEPTH = 64


def holdable(schema: dict[str, Any]) -> dict[str, Any]:
    """Without the keywords, formats and patterns that no grammar holds; one of several is any of them."""

    def keep(key: str, value: Any) -> bool:
        if key == "pattern":
            return isinstance(value, str) and search_pattern(value) is not None
        if key in ("minLength", "maxLength"):
            return isinstance(value, int) and value <= LONGEST
        return key in _OUTLINE | _BOUNDS or (key == "format" and str(value) in FORMATS)

    return _kept(schema, keep)


def outline(schema: dict[str, Any]) -> dict[str, Any]:
    """Types, names and listed values alone."""
    return _kept(schema, lambda key, value: key in _OUTLINE)


def _kept(schema: Any, keep: Callable[[str, Any], bool], depth: int = _DEPTH) -> Any:
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    for name, value in schema.items() if depth else ():
        key = "anyOf" if name == "oneOf" and "anyOf" not in schema else name
        if key in _OF_SCHEMAS and isinstance(value, dict):
            # Names by pattern stay only where patterns do.
            if key != "patternProperties" or all(keep("pattern", pattern) for pattern in value):
                out[key] = {inner: _kept(item, keep, depth - 1) for inner, item in value.items()}
        elif key in _LISTS and isinstance(value, list):
            out[key] = [_kept(item, keep, depth - 1) for item in value]
        elif key in _INNER:
            out[key] = _kept(value, keep, depth - 1)
        elif keep(key, value):
            out[key] = value
    return out
