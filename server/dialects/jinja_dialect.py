"""Models whose conversations a Jinja template writes, with `<think>` and `<tool_call>` in their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from typing import Any

from attrs import frozen

from ...models.text.tokenizer import Tokenizer
from ..engine.grammar import MARKUP, json_rule, literal
from ..http.errors import bad_request
from ..text.template import ChatTemplate, TemplateFailure
from .calls_json import JsonCalls
from .calls_xml import XmlCalls
from .channels import Parser, Plain
from .conversation import Conversation, Form, FormKind, Prompt, schemas
from .tagged import CALL, CALLED, THINK, THOUGHT, TaggedParser
from .tools import Tool, Tools
from .xml_grammar import parts, rules


class CallStyle(Enum):
    """How a call is written inside of `<tool_call>`."""

    JSON = "json"
    XML = "xml"


@frozen
class JinjaDialect:
    """`thinks`: answers may begin with `<think>`; `calls`: how calls are written, None where the model has none."""

    template: ChatTemplate
    tokenizer: Tokenizer
    thinks: bool
    calls: CallStyle | None

    @property
    def developer_role(self) -> bool:
        """Whether the template names that role."""
        return "developer" in self.template.source

    def prompt(self, conversation: Conversation) -> Prompt:
        """The prompt of a conversation. Raises `ApiError` 400 with the template's reason."""
        tools = conversation.tools
        if tools.callable and self.calls is None:
            raise bad_request("this model's chat template knows no tools", "tools", "unsupported_parameter")
        text = self._rendered(conversation, [tool.raw for tool in tools.all] if tools.callable else None)
        end = text.rstrip() if conversation.add_generation_prompt else ""
        opened = self.thinks and end.endswith(THINK)
        free = self.thinks and not end.endswith((THINK, THOUGHT))
        return Prompt(
            text=text,
            encode=self.tokenizer.encode_rendered,
            parser=self._parser(tools, opened),
            grammars=partial(self._grammars, conversation.form, opened, free),
            marks=self._marks(),
        )

    def _rendered(self, conversation: Conversation, tools: list[dict[str, Any]] | None) -> str:
        """The text of a conversation, without arguments that are no object where the template cannot write those."""
        given = self.tokenizer.disarm(conversation.messages)
        of_objects = _with_objects(given)
        while True:
            try:
                return self.template.render(
                    given,
                    tools=self.tokenizer.disarm(tools),
                    add_generation_prompt=conversation.add_generation_prompt,
                    variables=self.tokenizer.disarm(dict(conversation.variables)),
                )
            except TemplateFailure as error:
                if given == of_objects:
                    raise bad_request(str(error), "messages") from error
                given = of_objects

    def _marks(self) -> dict[int, str]:
        """Markup whose tokens are special: it stays in the text all the same."""
        ids = {self.tokenizer.backend.token_to_id(mark): mark for mark in MARKUP}
        return {token: mark for token, mark in ids.items() if token is not None and token in self.tokenizer.special}

    def _parser(self, tools: Tools, opened: bool) -> Callable[[], Parser]:
        if not self.thinks and not tools.callable:
            return Plain
        schemas = {tool.name: tool.parameters for tool in tools.callable}
        calls = XmlCalls(schemas, tools.guided) if self.calls is CallStyle.XML else JsonCalls(schemas, tools.guided)
        return lambda: TaggedParser(thinks=self.thinks, opened=opened, calls=calls if tools.callable else None)

    def _grammars(self, form: Form, opened: bool, free: bool, tools: Tools) -> tuple[str, ...]:
        """As a prompt has them. Raises `GrammarError` for what no call can be held to."""
        if form.kind is FormKind.TEXT and not tools.guided:
            return ()
        values = [part for tool in tools.callable for part in parts(tool)] if self.calls is CallStyle.XML else []
        return (*schemas(tools, form), *values, self._grammar(form, opened, free, tools))

    def _grammar(self, form: Form, opened: bool, free: bool, tools: Tools) -> str:
        """Reasoning is free; what follows it is held to the form and the tools."""
        formatted = form.kind is not FormKind.TEXT
        once = tools.named or not tools.parallel
        calls = f"{literal(CALL)} call" + ("" if once else f' ("\\n" {literal(CALL)} call)*')
        if tools.required:
            content = [f"content: {calls}"]
        elif formatted:
            content = [f"content: answer | {calls}" if tools.callable else "content: answer"]
            content.append(f"answer: {json_rule(form.schema)}")
        else:
            # Free text up to the marker, which begins a call.
            content = ["content: marked call | rest" if once else "content: (marked call)* rest"]
            content += [f"marked[lazy]: /(?s:.*){CALL}/", "rest: /(?s:.*)/"]
        start = "start: content"
        if opened or free:
            start = f"start: {'thought' if opened else 'thought?'} content\n" + r"thought: thinking /\n{0,2}/" + "\n"
            start += "thinking[lazy]: /" + ("" if opened else rf"\s{{0,2}}{THINK}") + r"(?s:.*)<\/think>/"
        return "\n".join([start, *content, *self._calls(tools)]) + "\n"

    def _calls(self, tools: Tools) -> Iterator[str]:
        """The rule `call`, which begins behind `<tool_call>`, and one for each tool."""
        if not tools.callable:
            return
        yield "call: " + " | ".join(f"call_{at}" for at in range(len(tools.callable)))
        for at, tool in enumerate(tools.callable):
            if self.calls is CallStyle.JSON:
                head = f'\n{{"name": "{tool.name}", "arguments": '
                end = "}\n" + CALLED
                yield f"call_{at}: {literal(head)} {_arguments(tool)} {literal(end)}"
            else:
                yield from rules(at, tool)


def _with_objects(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same with `{}` for arguments that are no object."""

    def whole(call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        text = isinstance(function["arguments"], str)
        return {**call, "function": {**function, "arguments": {}}} if text else call

    return [
        {**message, "tool_calls": [whole(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else message
        for message in messages
    ]


def _arguments(tool: Tool) -> str:
    if not tool.constrained:
        return json_rule({"type": "object"})
    return json_rule({"type": "object", **tool.parameters})
