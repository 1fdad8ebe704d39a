"""The tools of a chat request, and how they may be called."""

from __future__ import annotations

import re
from typing import Any

from attrs import field, frozen

from ..api.errors import bad_request
from ..api.jsonbody import Fields

MAX_TOOLS = 512

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


@frozen
class Tool:
    """A function; `parameters` is the JSON schema of its arguments, to be kept to where `strict`."""

    name: str
    parameters: dict[str, Any] = field(repr=False)
    strict: bool
    # As the template is given it.
    raw: dict[str, Any] = field(repr=False)


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
        return bool(self.callable) and (self.required or not self.parallel or any(t.strict for t in self.callable))

    @property
    def choice(self) -> str:
        """`tool_choice` as templates know it."""
        return "none" if not self.callable else "required" if self.required else "auto"


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
    if isinstance(choice, dict):
        named = _named(choice, tools)
        return Tools(tools, (named,), required=True, named=True, parallel=parallel)
    if choice not in (None, "auto", "none", "required"):
        raise fields.wrong("tool_choice", "one of `none`, `auto`, `required`, or an object that names a function")
    return Tools(tools, () if choice == "none" else tools, required=choice == "required", parallel=parallel)


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
    return Tool(called, function.mapping("parameters"), function.boolean("strict"), item)


def _named(choice: dict[str, Any], tools: tuple[Tool, ...]) -> Tool:
    outer = Fields(choice, "tool_choice.")
    if outer.choice("type", ("function",)) is None:
        raise bad_request("`tool_choice.type` is missing", "tool_choice.type")
    name = Fields(outer.mapping("function"), "tool_choice.function.").text("name")
    if name is None:
        raise bad_request("`tool_choice.function.name` is missing", "tool_choice.function.name")
    found = next((tool for tool in tools if tool.name == name), None)
    if found is None:
        raise bad_request(f"`tool_choice` names `{name[:128]}`, which is not in `tools`", "tool_choice")
    return found
