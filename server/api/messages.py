"""The messages of a chat request, checked and put into the form that templates expect."""

from __future__ import annotations

from typing import Any

from ..http.errors import ApiError, bad_request
from ..http.jsonbody import Fields, parse_body

MAX_MESSAGES = 4096

_ROLES = ("system", "developer", "user", "assistant", "tool")


def read_messages(fields: Fields, *, developer_role: bool) -> list[dict[str, Any]]:
    """The conversation: content as text, reasoning under both of its names, tool call arguments as objects.

    Arguments that are no object, as a limit may cut them, stay text. Whatever an answer holds is taken back as it was.
    Where the template does not know `developer`, it becomes `system`. Raises `ApiError` 400 naming the message.
    """
    messages = fields.array("messages")
    if not messages:
        raise bad_request("`messages` must be a list with at least one message", "messages")
    if len(messages) > MAX_MESSAGES:
        raise bad_request(f"`messages` has {len(messages)} messages; at most {MAX_MESSAGES} are taken", "messages")
    return [
        read_message(message, f"messages[{number}]", developer_role=developer_role)
        for number, message in enumerate(messages)
    ]


def read_message(value: Any, name: str, *, developer_role: bool) -> dict[str, Any]:
    """One message, called `name` where something is wrong with it. Raises `ApiError` 400."""
    if not isinstance(value, dict):
        raise bad_request(f"`{name}` must be an object", name)
    fields = Fields(value, f"{name}.")
    if value.get("role") is None:
        raise bad_request(f"`{name}.role` is missing", f"{name}.role")
    role = fields.choice("role", _ROLES)
    out: dict[str, Any] = {"role": "system" if role == "developer" and not developer_role else role}
    content = _content(fields)
    calls = fields.array("tool_calls")
    if role == "assistant":
        reasoning = fields.text("reasoning")
        if not reasoning:
            reasoning = fields.text("reasoning_content") or reasoning
        if reasoning is not None:
            out |= {"reasoning": reasoning, "reasoning_content": reasoning}
        if calls:
            out["tool_calls"] = [_call(call, f"{name}.tool_calls[{at}]") for at, call in enumerate(calls)]
        if content is None and not calls and reasoning is None and fields.get("refusal") is None:
            raise bad_request(f"`{name}` needs `content`, `reasoning` or `tool_calls`", f"{name}.content")
    elif content is None:
        raise bad_request(f"`{name}.content` is missing", f"{name}.content")
    out["content"] = content if content is not None else ""
    for optional in ("name", "tool_call_id"):
        text = fields.text(optional)
        if text is not None:
            out[optional] = text
    return out


def _content(fields: Fields) -> str | None:
    content = fields.get("content")
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise fields.wrong("content", "a string or a list of parts")
    return "\n".join(_part(part, f"{fields.path('content')}[{at}]") for at, part in enumerate(content))


def _part(part: Any, name: str) -> str:
    if not isinstance(part, dict):
        raise bad_request(f"`{name}` must be an object with a `type`", name)
    fields = Fields(part, f"{name}.")
    kind = fields.text("type")
    if kind not in ("text", "refusal"):
        raise bad_request(f"`{name}` is of type `{str(kind)[:40]}`; this model reads `text` only", f"{name}.type")
    text = fields.text(kind)
    if text is None:
        raise bad_request(f"`{name}.{kind}` is missing", f"{name}.{kind}")
    return text


def _call(call: Any, name: str) -> dict[str, Any]:
    fields = Fields(call if isinstance(call, dict) else {}, f"{name}.")
    function = fields.mapping("function")
    inner = Fields(function, f"{name}.function.")
    called, arguments = inner.text("name"), inner.text("arguments")
    if called is None:
        raise bad_request(f"`{name}` needs `function` with a `name`", name)
    out: dict[str, Any] = {"type": "function", "function": {"name": called, "arguments": _arguments(arguments)}}
    identity = fields.text("id")
    return out if identity is None else {"id": identity, **out}


def _arguments(text: str | None) -> dict[str, Any] | str:
    """What a call was given; the text itself where it is no JSON object."""
    try:
        return parse_body((text or "{}").encode())
    except ApiError:
        return text or ""
