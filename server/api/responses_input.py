"""`/v1/responses`: reading a request. It says in other words what a chat request says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve, field, frozen

from ..dialects.conversation import Conversation
from ..dialects.tools import read_tools
from ..http.errors import ApiError, bad_request, unsupported
from ..http.jsonbody import Fields
from .chat import EFFORTS, effort_variables, read_form
from .messages import MAX_MESSAGES, read_message
from .params import MAX_ALTERNATIVES, Params, Rules, check_model, read_params

# Fields that would need state here, or change the answer, with the value that changes nothing.
_UNREAD: dict[str, Any] = {
    "previous_response_id": None,
    "conversation": None,
    "background": False,
    "prompt": None,
    "json_schema": None,
    "prompt_logprobs": None,
    "n": 1,
}

# What a request may ask to be included; the rest that there is elsewhere is left out.
_LOGPROBS = "message.output_text.logprobs"


@frozen
class ResponsesRequest:
    """A checked request; `echoed` are the fields that the response repeats."""

    params: Params
    conversation: Conversation
    echoed: dict[str, Any] = field(repr=False)
    # The types of tools that were left out.
    skipped: tuple[str, ...] = ()
    # How many likeliest tokens are shown with each token; None for no log-probabilities.
    logprobs: int | None = None


def read_responses(fields: Fields, rules: Rules, *, developer_role: bool) -> ResponsesRequest:
    """Check the body of a request. Raises `ApiError`."""
    check_model(fields, rules)
    for name, neutral in _UNREAD.items():
        if fields.get(name) not in (None, neutral):
            raise unsupported(name)
    top = fields.integer("top_logprobs", 0, MAX_ALTERNATIVES) or 0
    scored = _LOGPROBS in (fields.array("include") or [])
    if top and not scored:
        raise bad_request(f"`top_logprobs` needs `{_LOGPROBS}` in `include`", "top_logprobs")
    fields.boolean("store")
    metadata = fields.mapping("metadata")
    params = read_params(fields, rules, max_tokens_field="max_output_tokens", lowest_max_tokens=1)
    reasoning = Fields(fields.mapping("reasoning"), "reasoning.")
    effort = reasoning.choice("effort", EFFORTS)
    truncation = fields.choice("truncation", ("auto", "disabled")) or "disabled"
    tools, skipped = _tools(fields)
    chat = _as_chat(fields, tools)
    conversation = Conversation(
        messages=_messages(fields, developer_role),
        tools=read_tools(chat),
        form=read_form(chat),
        variables=effort_variables(effort, fields.mapping("chat_template_kwargs")),
    )
    text = fields.mapping("text")
    echoed = {
        "instructions": fields.get("instructions"),
        "max_output_tokens": params.max_tokens,
        "metadata": metadata,
        "parallel_tool_calls": conversation.tools.parallel,
        "previous_response_id": None,
        "reasoning": {"effort": effort, "summary": None},
        "store": False,
        "temperature": params.sampling.temperature,
        "text": {"format": text.get("format") or {"type": "text"}},
        "tool_choice": fields.get("tool_choice") or "auto",
        "tools": fields.array("tools") or [],
        "top_logprobs": top,
        "top_p": params.sampling.top_p,
        "truncation": truncation,
    }
    # A stream always ends with its usage, and never has it before.
    params = evolve(params, include_usage=True, continuous_usage=False)
    return ResponsesRequest(params, conversation, echoed, skipped, top if scored else None)


# Tools that the vendor's server runs, or that are no functions; agents list them whether they are there or not.
_HOSTED = (
    *("web_search", "file_search", "code_interpreter", "computer", "image_generation", "mcp", "local_shell", "shell"),
    *("apply_patch", "custom", "namespace", "tool_search"),
)


def _tools(fields: Fields) -> tuple[list[Any], tuple[str, ...]]:
    """The tools but for hosted ones, and the types of those: they are left out where the model is free to call."""
    tools = fields.array("tools") or []
    choice = fields.get("tool_choice")
    free = choice in (None, "auto", "none") or (isinstance(choice, dict) and choice.get("mode") == "auto")
    if not free:
        return tools, ()
    return [tool for tool in tools if not _hosted(tool)], tuple(tool["type"] for tool in tools if _hosted(tool))


def _hosted(tool: Any) -> bool:
    kind = tool.get("type") if isinstance(tool, dict) else None
    return isinstance(kind, str) and any(kind == name or kind.startswith(f"{name}_") for name in _HOSTED)


def _choice(choice: Any) -> Any:
    """`tool_choice` as chat requests have it."""
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") != "allowed_tools":
        return {"type": choice.get("type"), "function": choice}
    listed = choice.get("tools")
    if isinstance(listed, list):
        free = choice.get("mode") == "auto"
        listed = [
            {"type": item.get("type"), "function": item} if isinstance(item, dict) else item
            for item in listed
            if not (free and _hosted(item))
        ]
    return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode"), "tools": listed}}


def _as_chat(fields: Fields, tools: list[Any]) -> Fields:
    """Tools and the text's format as chat requests have them."""
    form = Fields(fields.mapping("text"), "text.").mapping("format")
    if form.get("type") == "json_schema":
        form = {"type": "json_schema", "json_schema": form}
    choice = _choice(fields.get("tool_choice"))
    return Fields(
        {
            # An empty list is what clients of this endpoint send for none.
            "tools": [_tool(tool) for tool in tools] if tools else None,
            "tool_choice": None if choice == "auto" and not tools else choice,
            "parallel_tool_calls": fields.get("parallel_tool_calls"),
            "response_format": form or None,
        }
    )


def _tool(tool: Any) -> Any:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        return tool
    function = {key: tool[key] for key in ("name", "description", "parameters", "strict") if tool.get(key) is not None}
    return {"type": "function", "function": function}


def _messages(fields: Fields, developer_role: bool) -> list[dict[str, Any]]:
    """Instructions and input as messages."""
    given = fields.get("input")
    items: list[Any] = [{"role": "user", "content": given}] if isinstance(given, str) else fields.array("input") or []
    if not items:
        raise bad_request("`input` must be a string or a list with at least one item", "input")
    if len(items) > MAX_MESSAGES:
        raise bad_request(f"`input` has {len(items)} items; at most {MAX_MESSAGES} are taken", "input")
    messages: list[dict[str, Any]] = []
    for at, item in enumerate(items):
        name = f"input[{at}]"
        message = read_message(_as_message(item, name), name, developer_role=developer_role)
        if message["role"] == "assistant" and messages and messages[-1]["role"] == "assistant":
            messages[-1] = _joined(messages[-1], message)
        else:
            messages.append(message)
    instructions = fields.text("instructions")
    if instructions is None:
        return messages
    if messages[0]["role"] == "system":
        # Templates take one system message.
        return [{**messages[0], "content": f"{instructions}\n\n{messages[0]['content']}"}, *messages[1:]]
    return [{"role": "system", "content": instructions}, *messages]


def _joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """What items of one turn say together."""
    texts = {key: first.get(key, "") + second.get(key, "") for key in ("content", "reasoning", "reasoning_content")}
    calls = [*first.get("tool_calls", ()), *second.get("tool_calls", ())]
    return {**first, **{key: text for key, text in texts.items() if text or key == "content"}} | (
        {"tool_calls": calls} if calls else {}
    )


def _as_message(item: Any, name: str) -> Any:
    """An item as a chat message, not checked yet."""
    if not isinstance(item, dict):
        raise bad_request(f"`{name}` must be an object", name)
    kind = item.get("type", "message")
    if kind == "message":
        return {**item, "content": _parts(item.get("content"), name)}
    if kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if kind == "function_call_output":
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": _parts(item.get("output"), name)}
    if kind == "reasoning":
        parts = [*_list(item, "content", name), *_list(item, "summary", name)]
        texts = [part.get("text") for part in parts if isinstance(part, dict)]
        return {"role": "assistant", "content": "", "reasoning": "\n".join(text for text in texts if text)}
    raise _unknown(kind, f"{name}.type")


def _list(item: dict[str, Any], key: str, name: str) -> Sequence[Any]:
    return Fields(item, f"{name}.").array(key) or ()


def _parts(content: Any, name: str) -> Any:
    """Content whose parts are called as in chat messages."""
    if not isinstance(content, list):
        return content
    out = []
    for at, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in ("input_text", "output_text", "text", "refusal"):
            raise _unknown(kind, f"{name}.content[{at}].type")
        out.append({**part, "type": "refusal" if kind == "refusal" else "text"})
    return out


def _unknown(kind: Any, name: str) -> ApiError:
    return bad_request(f"`{name}` is `{str(kind)[:40]}`, which this server does not take", name)
