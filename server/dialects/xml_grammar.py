"""What calls as markup are held to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..engine.grammar import GrammarError, literal
from .calls_xml import FUNCTION, FUNCTION_END, KEY, PARAMETER, VALUE_CLOSE, VALUE_OPEN
from .formats import quoted
from .tagged import CALLED
from .tools import Tool
from .xml_values import Value, lowered


def rules(at: int, tool: Tool) -> Iterator[str]:
    """The rule `call_AT`, with its parameters in the order of the schema where it is held; with any otherwise.

    Raises `GrammarError` for what markup cannot be held to.
    """
    head, end = literal(f"\n{FUNCTION}{tool.name}>\n"), literal(f"{FUNCTION_END}\n{CALLED}")
    if not tool.constrained:
        yield f"call_{at}: {head} param_{at}* {end}"
        yield f"param_{at}: {literal(PARAMETER)} /{KEY}/ {literal(VALUE_OPEN)} value_{at}"
        yield f"value_{at}[lazy]: {quoted(f'(?s:.*){VALUE_CLOSE}')}"
        return
    required = tool.parameters.get("required") or []
    values = _values(at, tool)
    uses = [f"param_{at}_{n}" + ("" if name in required else "?") for n, name in enumerate(values)]
    yield f"call_{at}: {head} {' '.join(uses)} {end}"
    for n, (name, value) in enumerate(values.items()):
        yield f"param_{at}_{n}: {literal(f'{PARAMETER}{name}{VALUE_OPEN}')} {value.rule}"
        if value.terminal:
            yield f"{_name(at, n)}: {value.terminal}"


def parts(tool: Tool) -> Iterator[str]:
    """A grammar for each value that nothing may satisfy, which shows where the whole is far from its beginning."""
    for value in _values(0, tool).values() if tool.constrained else ():
        if value.bounded:
            yield f"start: VALUE\nVALUE: {value.terminal}\n"


def _name(at: int, number: int) -> str:
    return f"VALUE_{at}_{number}"


def _values(at: int, tool: Tool) -> dict[str, Value]:
    """The values of a tool's parameters. Raises `GrammarError`."""
    out = {}
    for number, (name, schema) in enumerate(_properties(tool).items()):
        try:
            out[name] = lowered(schema, tool.parameters, _name(at, number))
        except GrammarError as error:
            raise _cannot(tool, f"{error} in the parameter {name[:60]!r}") from error
    return out


_ANNOTATIONS = frozenset(["title", "description", "default", "examples", "$comment", "deprecated"])
_OF_ARGUMENTS = frozenset(["type", "properties", "required", "additionalProperties", "$defs", "definitions", "$schema"])


def _properties(tool: Tool) -> dict[str, Any]:
    """The schemas of the parameters, of those too that only `required` names."""
    given: Any = tool.parameters.get("properties", {})
    unknown = set(tool.parameters) - _OF_ARGUMENTS - _ANNOTATIONS
    if unknown or tool.parameters.get("type", "object") != "object" or not isinstance(given, dict):
        raise _cannot(tool, "parameters that are more than an object with properties")
    required, others = tool.parameters.get("required") or [], tool.parameters.get("additionalProperties", True)
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise _cannot(tool, "`required` that is no list of names")
    properties = {**given, **{name: others for name in required if name not in given}}
    for name, schema in properties.items():
        if schema is False and name in required:
            raise _cannot(tool, f"the required parameter {name[:60]!r}, which it does not allow")
        if not re.fullmatch(KEY, name) or name != name.strip():
            raise _cannot(tool, f"the parameter {name[:60]!r}")
    return {name: {} if schema is True else schema for name, schema in properties.items() if schema is not False}


def _cannot(tool: Tool, what: str) -> GrammarError:
    return GrammarError(
        f"the tool `{tool.name}` has {what}, which this server cannot enforce for the calls of this model"
    )
