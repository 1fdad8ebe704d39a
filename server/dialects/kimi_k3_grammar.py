"""What Kimi K3's answers are held to, as a grammar whose markers are tokens."""

from __future__ import annotations

from collections.abc import Iterator

from ..engine.grammar import json_rule, literal
from .conversation import Form, FormKind, schemas
from .kimi_k3_parser import Channel
from .tools import Tool, Tools


def grammars(form: Form, opened: Channel | None, ids: tuple[int, ...], tools: Tools) -> tuple[str, ...]:
    """The grammars of an answer whose channel `opened` is in the prompt, as a prompt has them."""
    if opened is None or not (form.kind is not FormKind.TEXT or tools.guided):
        return ()
    return (*schemas(tools, form), _grammar(form, opened, ids, tools))


def _grammar(form: Form, opened: Channel, ids: tuple[int, ...], tools: Tools) -> str:
    """Reasoning is free, then comes the response, held to the form, or empty where a tool is due, then the calls."""
    formatted = form.kind is not FormKind.TEXT
    start, stop, sep, _ = (f"<[{token}]>" for token in ids)

    def tag(marker: str, body: str) -> str:
        return f"{marker} {body} {sep}"

    once = tools.named or not tools.parallel
    calls = f"{tag(start, literal('tools'))} call{'' if once else '+'} {tag(stop, literal('tools'))}"
    closed = tag(stop, literal("response"))
    if tools.required:
        answer = f"{closed} {calls}"
    elif tools.callable:
        answer = f"content {closed} ({calls})?" + (f" | {closed} {calls}" if formatted else "")
    else:
        answer = f"content {closed}"
    begin = tag(start, literal("response"))
    lead = f"TEXT {tag(stop, literal('think'))} {begin} " if opened is Channel.REASONING else ""
    lines = [
        f"start: {lead}answer {tag(stop, literal('message'))}",
        f"answer: {answer}",
        f"content: {json_rule(form.schema) if formatted else 'TEXT'}",
        "TEXT: /(?s:.*)/",
    ]
    if tools.callable:
        lines.append("call: " + " | ".join(f"call_{at}" for at in range(len(tools.callable))))
        lines += [_call(at, tool, start, stop, sep) for at, tool in enumerate(tools.callable)]
        lines += ["INDEX: /[1-9][0-9]{0,2}/", f"argument: {' | '.join(_arguments(start, stop, sep))}"]
    return "\n".join(lines) + "\n"


def _call(at: int, tool: Tool, start: str, stop: str, sep: str) -> str:
    """Arguments are one JSON block where they are held to a schema, which applies to it, else elements of any name."""
    head = f"{start} {literal(f'call tool="{tool.name}" index="')} INDEX {literal('"')} {sep}"
    body = "argument*"
    if tool.constrained:
        block = json_rule({"type": "object", **tool.parameters})
        body = f"{start} {literal('json type="object"')} {sep} {block} {stop} {literal('json')} {sep}"
    return f"call_{at}: {head} {body} {stop} {literal('call')} {sep}"


def _arguments(start: str, stop: str, sep: str) -> Iterator[str]:
    """An argument of each type."""
    for kind in ("string", "number", "boolean", "null", "object", "array"):
        key = f'{start} {literal('argument key="')} /[^"<>\\n]{{1,128}}/ {literal(f'" type="{kind}"')} {sep}'
        value = "TEXT" if kind == "string" else json_rule({"type": kind})
        yield f"{key} {value} {stop} {literal('argument')} {sep}"
