"""What a parameter of a call as markup may be: its schema lowered to a grammar of the text that stands in the call."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from ..engine.grammar import GrammarError, json_rule, literal
from .calls_xml import VALUE_CLOSE, types_of
from .formats import FORMATS, LONGEST, quoted, search_pattern

# A text that does not hold what closes it, nor does together with it.
_TEXT = rf"(/(?s:.*)/ & ~{quoted(rf'(?s:.*){VALUE_CLOSE[:-1]}(\n(?s:.*))?')})"

_SPACE = r"[\s\x1c-\x1f]*"
# What is read as a value of another type, where the schema has both that type and strings.
_READ = {
    "null": f"{_SPACE}(null|None){_SPACE}",
    "boolean": f"{_SPACE}(true|false|True|False){_SPACE}",
    "integer": rf"{_SPACE}-?(0|[1-9][0-9]*){_SPACE}",
    "number": rf"{_SPACE}-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?{_SPACE}",
    "array": rf"{_SPACE}\[(?s:.*)",
    "object": rf"{_SPACE}\{{(?s:.*)",
}
_WRITTEN = {
    "null": "null",
    "boolean": "true|false",
    "integer": "-?(0|[1-9][0-9]{0,17})",
    "number": r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?",
}
_OF_TYPE: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}

# Keywords of which a schema is put together, and those that need more than a grammar.
_WHOLE = ("$ref", "anyOf", "oneOf", "allOf")
_BEYOND = ("not", "if", "$dynamicRef", "$recursiveRef")
_OF_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")

# Ways to satisfy a schema, and references within one another.
_MOST_WAYS = 64
_DEPTH = 16

type Way = tuple[dict[str, Any], ...]


@frozen
class Value:
    """A value with what closes it: `rule` is a Lark expression, `terminal` what its `NAME` stands for, if anything.

    `bounded`: nothing may satisfy the terminal, which is for trying out.
    """

    rule: str
    terminal: str = field(default="", repr=False)
    bounded: bool = False


def lowered(schema: dict[str, Any], root: Mapping[str, Any], name: str) -> Value:
    """The grammar of a value by its schema, with `name` for its terminal. Raises `GrammarError` with what is beyond it.

    A value that may be a string is written as it is, any other one as JSON.
    """
    shared = {key: root[key] for key in ("$defs", "definitions") if key in root}
    types = types_of(schema, root)
    if types and "string" not in types:
        return Value(f"{json_rule({**schema, **shared})} {literal(VALUE_CLOSE)}")
    ways = _ways(schema, root, _DEPTH)
    free = types or frozenset(["string"])
    misread = [f"~{quoted(_READ[kind])}" for kind in sorted(types & set(_READ))]
    texts, rules = [], []
    for way in ways:
        of_way = _types(way, free)
        bounds = _bounds(way) if "string" in of_way else None
        if bounds is not None:
            texts.append(" & ".join([_TEXT, *bounds, *misread]))
        kinds = of_way - {"integer"} if "number" in of_way else of_way
        scalars = [kind for kind in _WRITTEN if kind in kinds]
        texts += [scalar for kind in scalars if (scalar := _scalar(way, kind))]
        rest = [kind for kind in ("array", "object") if kind in of_way]
        rules += [json_rule({"allOf": list(way), "type": rest, **shared})] if rest else []
    terminal = f"({' | '.join(dict.fromkeys(texts))}) {literal(VALUE_CLOSE)}" if texts else ""
    options = [*([name] if texts else []), *(f"{rule} {literal(VALUE_CLOSE)}" for rule in rules)]
    if not options:
        raise GrammarError("a schema that nothing satisfies")
    return Value(f"({' | '.join(options)})", terminal, not rules and terminal != _FREE)


_FREE = f"({_TEXT}) {literal(VALUE_CLOSE)}"


def _ways(schema: Any, root: Mapping[str, Any], depth: int) -> list[Way]:
    """The ways to satisfy a schema: for each the plain schemas that must all hold."""
    if isinstance(schema, bool):
        return [({},)] if schema else []
    if not isinstance(schema, dict) or not depth:
        raise GrammarError("a schema that leads too deep" if isinstance(schema, dict) else "a schema that is none")
    plain = {key: value for key, value in schema.items() if key not in _WHOLE}
    beyond = next((key for key in _BEYOND if key in plain), None)
    if beyond is not None:
        raise GrammarError(f"`{beyond}`")
    parts: list[list[Way]] = [[(plain,)]]
    if "$ref" in schema:
        parts.append(_ways(_target(schema["$ref"], root), root, depth - 1))
    for key in ("allOf", "anyOf", "oneOf"):
        if key in schema:
            if not isinstance(schema[key], list):
                raise GrammarError(f"`{key}` without a list")
            options = [_ways(item, root, depth - 1) for item in schema[key]]
            if key == "allOf":
                parts += options
                continue
            texts = [any("string" in _types(way, frozenset(["string"])) for way in option) for option in options]
            if key == "oneOf" and sum(texts) > 1:
                raise GrammarError("`oneOf` of several texts")
            parts.append([way for option in options for way in option])
    out: list[Way] = [()]
    for part in parts:
        out = [(*first, *second) for first in out for second in part]
        if len(out) > _MOST_WAYS:
            raise GrammarError("too many ways to satisfy it")
    return out


def _target(reference: Any, root: Mapping[str, Any]) -> Any:
    target: Any = root
    for step in str(reference).removeprefix("#/").split("/"):
        target = target.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(target, Mapping) else None
    return target


def _types(way: Way, free: frozenset[str]) -> frozenset[str]:
    """The types that a way leaves among those that are `free`; an integer is a number too."""
    out = free | {"integer"} if "number" in free else free
    for plain in way:
        types = types_of(plain, {})
        if types:
            out &= types | {"integer"} if "number" in types else types
    return out


def _listed(way: Way) -> list[Any] | None:
    """The values that a way lists; None where it lists none."""
    lists = [plain["enum"] for plain in way if "enum" in plain]
    lists += [[plain["const"]] for plain in way if "const" in plain]
    if not all(isinstance(values, list) for values in lists):
        raise GrammarError("`enum` without a list")
    common = [value for value in lists[0] if all(value in others for others in lists)] if lists else []
    return common if lists else None


def _bounds(way: Way) -> list[str] | None:
    """What a text is held to, as Lark's terminals; None where no text is listed."""
    listed = _listed(way)
    texts = [value for value in listed or () if isinstance(value, str)]
    if listed is not None and not texts:
        return None
    out = [f"({' | '.join(map(literal, texts))})"] if texts else []
    for plain in way:
        least, most = (_length(plain, key) for key in ("minLength", "maxLength"))
        if least or most is not None:
            out.append(quoted(f"(?s:.{{{least or 0},{'' if most is None else most}}})"))
        if "pattern" in plain:
            regex = search_pattern(plain["pattern"]) if isinstance(plain["pattern"], str) else None
            if regex is None:
                raise GrammarError("a `pattern` that looks around or back")
            out.append(quoted(regex))
        if "format" in plain:
            name = str(plain["format"])
            if name not in FORMATS:
                raise GrammarError(f"the format {name[:60]!r}")
            out.append(quoted(FORMATS[name]))
    return out


def _length(plain: dict[str, Any], key: str) -> int | None:
    value = plain.get(key)
    if value is not None and (type(value) is not int or not 0 <= value <= LONGEST):
        raise GrammarError(f"`{key}` that is no number up to {LONGEST}")
    return value


def _scalar(way: Way, kind: str) -> str:
    """A number, truth value or null beside texts; nothing where none is listed."""
    listed = _listed(way)
    if listed is not None:
        values = [value for value in listed if type(value) in _OF_TYPE[kind]]
        return f"({' | '.join(literal(json.dumps(value)) for value in values)})" if values else ""
    bound = next((key for plain in way for key in _OF_NUMBERS if key in plain), None)
    if bound is not None and kind in ("integer", "number"):
        raise GrammarError(f"`{bound}` beside texts")
    return quoted(_WRITTEN[kind])
