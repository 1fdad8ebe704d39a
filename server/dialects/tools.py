"""The tools of a chat request, and how they may be called."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from attrs import evolve, field, frozen

from ..http.errors import bad_request
from ..http.jsonbody import Fields
from .relaxed import holdable, outline

MAX_TOOLS = 512

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


@frozen
class Tool:
    """A function; `parameters` is the JSON schema of its arguments, to be kept to where `held`.

    That is where the tool is strict, and where a call is forced. `strict`: to every word of it.
    """

    name: str
    parameters: dict[str, Any] = field(repr=False)
    constrained: bool
    # As the template is given it.
    raw: dict[str, Any] = field(repr=False)
    strict: bool = False


@frozen
class Tools:
    """The tools that may be called. `required`: at least one must; `named`: the request names the only one."""

    all: tuple[Tool, ...] = ()
    callable: tuple[Tool, ...] = ()
    required: bool = False
    named: bool = False
    parallel: bool = True

    @property
    def guided(self) -> bool:
        """Whether the answer must be held to a grammar."""
        return bool(self.callable) and (self.required or not self.parallel or any(t.constrained for t in self.callable))

    @property
    def choice(self) -> str:
        """`tool_choice` as templates know it."""
        return "none" if not self.callable else "required" if self.required else "auto"

    def looser(self) -> Iterator[Tools]:
        """The same with ever less that calls are held to, but for strict tools: to be tried where no grammar can."""
        for relax in (holdable, outline, None):
            yield evolve(self, callable=tuple(_looser(tool, relax) for tool in self.callable))


def _looser(tool: Tool, relax: Callable[[dict[str, Any]], dict[str, Any]] | None) -> Tool:
    if tool.strict or not tool.constrained:
        return tool
    return evolve(tool, constrained=False) if relax is None else evolve(tool, parameters=relax(tool.parameters))


def read_tools(fields: Fields) -> Tools:
    """Check `tools`, `tool_choice` and `parallel_tool_calls`. Raises `ApiError` 400."""
    parallel = fields.boolean("parallel_tool_calls", True)
    given = fields.array("tools")
    choice = fields.get("tool_choice")
    if choice is not None and not isinstance(choice, str | dict):
        raise fields.wrong("tool_choice", "a string or an object")
    if given is None:
        if choice not in (None, "none"):
            raise bad_request("`tool_choice` needs `tools`", "tool_choice")
        return Tools()
    if not given:
        raise bad_request("`tools` must not be empty", "tools")
    if len(given) > MAX_TOOLS:
        raise bad_request(f"`tools` has {len(given)} tools; at most {MAX_TOOLS} are taken", "tools")
    tools = tuple(_tool(item, f"tools[{at}]") for at, item in enumerate(given))
    names = [tool.name for tool in tools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise bad_request(f"`tools` has two functions `{twice}`", "tools")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed, required = _allowed(choice, tools)
        return Tools(tools, _forced(allowed) if required else allowed, required=required, parallel=parallel)
    if isinstance(choice, dict):
        named = _named(choice, tools, "tool_choice")
        return Tools(tools, _forced([named]), required=True, named=True, parallel=parallel)
    if choice not in (None, "auto", "none", "required"):
        raise fields.wrong("tool_choice", "one of `none`, `auto`, `required`, or an object that names a function")
    if choice == "required":
        return Tools(tools, _forced(tools), required=True, parallel=parallel)
    return Tools(tools, () if choice == "none" else tools, parallel=parallel)


# What a schema may say beside its properties and still be closed to others.
_PLAIN = frozenset(["type", "properties", "required", "title", "description", "$defs", "definitions", "$schema"])


def _forced(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    """Tools whose calls are held to their schemas; what a plain schema does not name is not allowed."""
    return tuple(evolve(tool, constrained=True, parameters=_closed(tool.parameters)) for tool in tools)


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("type", "object") != "object" or set(schema) - _PLAIN:
        return schema
    return {"type": "object", "properties": {}, "additionalProperties": False, **schema}


def _tool(item: Any, name: str) -> Tool:
    if not isinstance(item, dict):
        raise bad_request(f"`{name}` must be an object", name)
    outer = Fields(item, f"{name}.")
    if outer.choice("type", ("function",)) is None:
        raise bad_request(f"`{name}.type` is missing", f"{name}.type")
    function = Fields(outer.mapping("function"), f"{name}.function.")
    called = function.text("name")
    if called is None or not _NAME.fullmatch(called):
        raise function.wrong("name", "1 to 128 letters, digits or `_.:-`")
    function.text("description")
    strict = function.boolean("strict")
    return Tool(called, function.mapping("parameters"), strict, item, strict)


def _named(choice: Any, tools: tuple[Tool, ...], path: str) -> Tool:
    """The tool that `{"type": "function", "function": {"name": …}}` names. Raises `ApiError` 400."""
    if not isinstance(choice, dict):
        raise bad_request(f"`{path}` must be an object", path)
    outer = Fields(choice, f"{path}.")
    if outer.choice("type", ("function",)) is None:
        raise bad_request(f"`{path}.type` is missing", f"{path}.type")
    name = Fields(outer.mapping("function"), f"{path}.function.").text("name")
    if name is None:
        raise bad_request(f"`{path}.function.name` is missing", f"{path}.function.name")
    match = next((tool for tool in tools if tool.name == name), None)
    if match is None:
        raise bad_request(f"`{path}` names `{name[:128]}`, which is not in `tools`", path)
    return match


def _allowed(choice: dict[str, Any], tools: tuple[Tool, ...]) -> tuple[tuple[Tool, ...], bool]:
    """The tools that a choice allows, and whether one of them must be called."""
    path = "tool_choice.allowed_tools"
    given = Fields(Fields(choice, "tool_choice.").mapping("allowed_tools"), f"{path}.")
    mode = given.choice("mode", ("auto", "required"))
    if mode is None:
        raise bad_request(f"`{path}.mode` is missing", f"{path}.mode")
    listed = given.array("tools")
    if not listed:
        raise bad_request(f"`{path}.tools` must name at least one tool", f"{path}.tools")
    names = {_named(item, tools, f"{path}.tools[{at}]").name for at, item in enumerate(listed)}
    return tuple(tool for tool in tools if tool.name in names), mode == "required"
