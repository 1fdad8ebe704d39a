"""Kimi K3's conversations, which no template writes: XTML.

`<|open|>TAG<|sep|>` … `<|close|>TAG<|sep|>`, where the markers are single tokens. A prompt is made of segments that are
encoded one by one, as in training: markers to their ids, all else as text in which nothing is special.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import frozen

from ...models.text.tokenizer import Tokenizer, TooManyTokens
from ..http.errors import bad_request
from .conversation import Conversation, Form, FormKind, Prompt
from .kimi_k3_grammar import grammars
from .kimi_k3_parser import MARKS, Channel, XtmlParser

OPEN, CLOSE, SEP, END = MARKERS = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")

EFFORTS = ("low", "medium", "high", "max")

_EFFORT = (
    "`thinking_effort` guides on how much to think in your thinking channel (not including the response channel), "
    "supported values include `low`, `medium`, `high`, and `max`.\nNow the system is invoked with `thinking_effort={}`."
)
_CHOICE = {
    "required": "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message.",
    "none": "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message.",
}
_FORM = (
    "The system is invoked with `response_format={}`.\n"
    "Your response must be raw JSON data without markdown code blocks (```json) or any additional formatting."
)


@frozen
class Segment:
    """Text that is encoded by itself; a marker is one token."""

    text: str
    marker: bool = False


@frozen
class KimiDialect:
    """Kimi K3 with its tokenizer."""

    tokenizer: Tokenizer
    # Ids of the four markers, in the order of `MARKERS`.
    ids: tuple[int, ...]
    developer_role: bool = False

    def prompt(self, conversation: Conversation) -> Prompt:
        """The prompt of a conversation. Raises `ApiError` 400 where it cannot be written."""
        thinking = _thinking(conversation.variables)
        segments = list(_conversation(conversation, thinking))
        channel = Channel.REASONING if thinking else Channel.CONTENT
        opened = channel if conversation.add_generation_prompt else None
        schemas = {tool.name: tool.parameters for tool in conversation.tools.callable}

        def encode(text: str, most: int | None = None) -> list[int]:
            return self._encode(segments, len(text), most)

        return Prompt(
            text="".join(segment.text for segment in segments),
            encode=encode,
            parser=lambda: XtmlParser(opened, schemas, calls=bool(schemas)),
            grammars=partial(grammars, conversation.form, opened, self.ids),
            marks=dict(zip(self.ids, MARKS, strict=True)),
        )

    def _encode(self, segments: Sequence[Segment], length: int, most: int | None) -> list[int]:
        """The ids of the first segments, up to so many characters."""
        marker_ids = dict(zip(MARKERS, self.ids, strict=True))
        out: list[int] = []
        for segment in segments:
            if length <= 0:
                break
            text = segment.text
            out += [marker_ids[text]] if segment.marker else self.tokenizer.encode_plain(text[:length], most)
            length -= len(segment.text)
            if most is not None and len(out) > most:
                raise TooManyTokens(len(out))
        return out


def dialect_of(tokenizer: Tokenizer) -> KimiDialect | None:
    """The dialect, where the vocabulary has its markers as special tokens."""
    ids = [tokenizer.backend.token_to_id(marker) for marker in MARKERS]
    known = tuple(token for token in ids if token is not None and token in tokenizer.special)
    return KimiDialect(tokenizer, known) if len(known) == len(MARKERS) else None


def _thinking(variables: Mapping[str, Any]) -> bool:
    return all(variables.get(name) is not False for name in ("thinking", "enable_thinking"))


def _effort(variables: Mapping[str, Any]) -> str:
    given = variables.get("thinking_effort", variables.get("reasoning_effort", "max"))
    effort = {"minimal": "low", "xhigh": "max"}.get(given, given) if isinstance(given, str) else given
    if effort not in EFFORTS:
        raise bad_request(f"the thinking effort must be one of {', '.join(EFFORTS)}", "chat_template_kwargs")
    return effort


def _conversation(conversation: Conversation, thinking: bool) -> Iterator[Segment]:
    """System messages, the conversation, more system messages, and the beginning of the answer."""
    tools, messages = conversation.tools, conversation.messages
    if tools.all:
        declared = json.dumps(_sorted([tool.raw for tool in tools.all]), ensure_ascii=False, separators=(",", ":"))
        body = f"# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n{declared}\n```"
        yield from _message(_text(body), ("role", "system"), ("type", "tool-declare"))
    if thinking:
        yield from _system("thinking-effort", _EFFORT.format(_effort(conversation.variables)))
    calls: list[dict[str, Any]] = []
    position = 0
    for message in _results_in_order(messages):
        role, content = message["role"], message.get("content") or ""
        name = [("name", message["name"])] if message.get("name") else []
        if role == "assistant":
            calls, position = message.get("tool_calls") or [], 0
            yield from _message(_assistant(message, thinking), ("role", "assistant"), *name)
        elif role == "tool":
            position += 1
            yield from _message(
                _text(content), ("role", "tool"), ("tool", _tool_name(message, calls, position)), ("index", position)
            )
        else:
            yield from _message(_text(content), ("role", role), *name)
    if tools.all and tools.choice in _CHOICE:
        yield from _system("tool-choice", _CHOICE[tools.choice])
    yield from _form(conversation.form)
    if conversation.add_generation_prompt:
        yield from _open("message", ("role", "assistant"))
        yield from _open("think" if thinking else "response")


def _form(form: Form) -> Iterator[Segment]:
    if form.kind is FormKind.TEXT:
        return
    body = _FORM.format(form.kind.value)
    if form.kind is FormKind.JSON_SCHEMA:
        schema = json.dumps(_sorted(form.schema), ensure_ascii=False, separators=(",", ":"))
        body += f"\nThe JSON data must match the following schema:\n```json\n{schema}\n```"
    yield from _system("response-format", body)


def _assistant(message: dict[str, Any], thinking: bool) -> Iterator[Segment]:
    if thinking:
        reasoning = message.get("reasoning_content") or ""
        yield from _element("think", _text(reasoning if reasoning.strip() else ""))
    yield from _element("response", _text(message.get("content") or ""))
    if not message.get("tool_calls"):
        return
    yield from _open("tools")
    for index, call in enumerate(message["tool_calls"], start=1):
        function = call["function"]
        yield from _open("call", ("tool", function["name"]), ("index", index))
        yield from _arguments(function["arguments"])
        yield from _close("call")
    yield from _close("tools")


def _arguments(given: dict[str, Any] | str) -> Iterator[Segment]:
    """An element for each argument; what is no object is one block of JSON, as far as it goes."""
    if isinstance(given, str):
        yield from _element("json", _text(given), ("type", "object"))
        return
    for key, value in given.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield from _element("argument", _text(text), ("key", key), ("type", _type(value)))


def _results_in_order(messages: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Results of tools in the order of the calls that they answer, where every one of a run names its call."""
    order: dict[str, tuple[int, str]] = {}
    run: list[dict[str, Any]] = []
    for message in [*messages, {"role": "end"}]:
        if message["role"] == "tool":
            run.append(message)
            continue
        if all(result.get("tool_call_id") in order for result in run):
            run.sort(key=lambda result: order[result["tool_call_id"]][0])
            run = [{**result, "name": order[result["tool_call_id"]][1]} for result in run]
        yield from run
        run = []
        if message["role"] == "assistant":
            order = {}
            for position, call in enumerate(message.get("tool_calls") or []):
                order.setdefault(call.get("id"), (position, call["function"]["name"]))
        if message["role"] != "end":
            yield message


def _tool_name(message: dict[str, Any], calls: list[dict[str, Any]], position: int) -> str:
    name = message.get("name")
    if name is None and position <= len(calls):
        name = calls[position - 1]["function"]["name"]
    if name is None:
        raise bad_request("a `tool` message answers no call; give it a `tool_call_id` or a `name`", "messages")
    return name


def _sorted(value: Any) -> Any:
    """The same with the keys of all objects in order."""
    if isinstance(value, dict):
        return {key: _sorted(item) for key, item in sorted(value.items())}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _type(value: Any) -> str:
    names = {bool: "boolean", int: "number", float: "number", str: "string", dict: "object", list: "array"}
    return "null" if value is None else names[type(value)]


type Attribute = tuple[str, object]


def _text(text: str) -> list[Segment]:
    return [Segment(text)] if text else []


def _open(tag: str, *attributes: Attribute) -> Iterator[Segment]:
    """Each piece of an attribute is a segment of its own."""
    yield Segment(OPEN, marker=True)
    yield Segment(tag)
    for name, value in attributes:
        escaped = str(value).replace("&", "&amp;").replace('"', "&quot;")
        yield from (Segment(part) for part in (f" {name}", '="', escaped, '"') if part)
    yield Segment(SEP, marker=True)


def _close(tag: str) -> Iterator[Segment]:
    yield Segment(CLOSE, marker=True)
    yield Segment(tag)
    yield Segment(SEP, marker=True)


def _element(tag: str, body: Iterable[Segment], *attributes: Attribute) -> Iterator[Segment]:
    yield from _open(tag, *attributes)
    yield from body
    yield from _close(tag)


def _message(body: Iterable[Segment], *attributes: Attribute) -> Iterator[Segment]:
    yield from _element("message", body, *attributes)
    yield Segment(END, marker=True)


def _system(kind: str, body: str) -> Iterator[Segment]:
    yield from _message(_text(body.strip()), ("role", "system"), ("type", kind))
