"""`/v1/chat/completions`: reading a request, shaping its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve, field, frozen

from .errors import bad_request, unsupported
from .generation import Part, Plan
from .jsonbody import Fields
from .messages import read_messages
from .params import MAX_ALTERNATIVES, Params, Rules, check_model, read_params
from .scores import Scored
from .shapes import Envelope, Usage, new_id, token_bytes, token_ids, token_name
from .template import ChatTemplate, TemplateFailure
from .tokenizer import Tokenizer

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


@frozen
class ChatRequest:
    """A checked request; its prompt is not rendered yet."""

    params: Params
    messages: list[dict[str, Any]] = field(repr=False)
    add_generation_prompt: bool
    # The template's own switches.
    variables: dict[str, Any]
    # How many likeliest tokens are shown with each token; None for no log-probabilities.
    logprobs: int | None


def read_chat(fields: Fields, rules: Rules, template: ChatTemplate) -> ChatRequest:
    """Check the body of a chat request. Raises `ApiError`."""
    check_model(fields, rules)
    limit = "max_tokens" if fields.get("max_completion_tokens") is None else "max_completion_tokens"
    fields.integer("max_tokens", 1)
    params = read_params(fields, rules, max_tokens_field=limit, lowest_max_tokens=1)
    _check_tools(fields)
    _check_format(fields)
    messages = read_messages(fields, developer_role="developer" in template.source)
    variables = fields.mapping("chat_template_kwargs")
    effort = fields.choice("reasoning_effort", _EFFORTS)
    if effort is not None:
        switch = {"enable_thinking": False, "thinking": False} if effort == "none" else {}
        variables = {"reasoning_effort": effort, **switch, **variables}
    return ChatRequest(
        params=params,
        messages=messages,
        add_generation_prompt=fields.boolean("add_generation_prompt", True),
        variables=variables,
        logprobs=_logprobs(fields),
    )


def _logprobs(fields: Fields) -> int | None:
    wanted = fields.boolean("logprobs")
    top = fields.integer("top_logprobs", 0, MAX_ALTERNATIVES)
    if top is not None and not wanted:
        raise bad_request("`top_logprobs` needs `logprobs: true`", "top_logprobs")
    return (top or 0) if wanted else None


def _check_tools(fields: Fields) -> None:
    """Tools are refused, whatever is asked of them; saying that there are none is fine."""
    fields.boolean("parallel_tool_calls")
    tools = fields.array("tools")
    if tools is not None:
        raise unsupported("tools") if tools else bad_request("`tools` must not be empty", "tools")
    choice = fields.get("tool_choice")
    if choice is not None and not isinstance(choice, str | dict):
        raise fields.wrong("tool_choice", "a string or an object")
    if choice not in (None, "none"):
        raise bad_request("`tool_choice` needs `tools`", "tool_choice")


def _check_format(fields: Fields) -> None:
    if fields.get("response_format") is None:
        return
    wanted = Fields(fields.mapping("response_format"), "response_format.")
    kind = wanted.choice("type", ("text", "json_object", "json_schema"))
    if kind is None:
        raise bad_request("`response_format.type` is missing", "response_format.type")
    if kind == "json_schema":
        schema = Fields(wanted.mapping("json_schema"), "response_format.json_schema.").mapping("schema")
        if not schema:
            raise bad_request("`response_format.json_schema.schema` is missing", "response_format.json_schema.schema")
    if kind != "text":
        raise unsupported("response_format")


def render_chat(request: ChatRequest, template: ChatTemplate, tokenizer: Tokenizer) -> str:
    """The prompt of a conversation. Raises `ApiError` 400 with the template's reason."""
    try:
        return template.render(
            tokenizer.disarm(request.messages),
            add_generation_prompt=request.add_generation_prompt,
            variables=tokenizer.disarm(request.variables),
        )
    except TemplateFailure as error:
        raise bad_request(str(error), "messages") from error


@frozen
class ChatShape:
    """How a chat request is answered; all choices have the same prompt."""

    params: Params
    plans: tuple[Plan, ...]
    envelope: Envelope
    tokenizer: Tokenizer
    logprobs: int | None

    @property
    def id(self) -> str:
        """The id of the response."""
        return self.envelope.id

    @property
    def prompt_tokens(self) -> int:
        """The tokens of the conversation."""
        return len(self.plans[0].prompt)

    def whole(self, parts: Sequence[Part], usage: Usage) -> dict[str, Any]:
        """The whole response."""
        choices = [
            {
                "index": part.index,
                "message": {"role": "assistant", "content": part.delta.text, "refusal": None},
                "logprobs": self._logprobs(part),
                **self._ids(part),
                "finish_reason": part.delta.finish,
                "stop_reason": part.delta.stop_reason,
            }
            for part in parts
        ]
        return self.envelope.wrap(choices, usage=usage.body(), **self._prompt_ids())

    def opening(self) -> list[dict[str, Any]]:
        """A chunk for each choice that names the role."""
        role = {"delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        return [self._chunk([{"index": index, **role}], **self._prompt_ids()) for index in range(len(self.plans))]

    def chunks(self, part: Part, first: bool) -> list[dict[str, Any]]:
        """A chunk for what was added, and one for the end."""
        out = []
        logprobs, ids = self._logprobs(part), self._ids(part)
        if part.delta.text or logprobs is not None or ids:
            delta = {"content": part.delta.text}
            choice = {"index": part.index, "delta": delta, "logprobs": logprobs, **ids, "finish_reason": None}
            out.append(self._chunk([choice]))
        if part.delta.finish is not None:
            end = {"finish_reason": part.delta.finish, "stop_reason": part.delta.stop_reason}
            out.append(self._chunk([{"index": part.index, "delta": {}, "logprobs": None, **end}]))
        return out

    def closing(self, usage: Usage) -> dict[str, Any]:
        """The chunk with the usage."""
        return self._chunk([], usage=usage.body())

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return evolve(self.envelope, object="chat.completion.chunk").wrap(choices, **more)

    def _ids(self, part: Part) -> dict[str, Any]:
        return {"token_ids": token_ids(part.delta)} if self.params.return_token_ids else {}

    def _prompt_ids(self) -> dict[str, Any]:
        return {"prompt_token_ids": list(self.plans[0].prompt)} if self.params.return_token_ids else {}

    def _logprobs(self, part: Part) -> dict[str, Any] | None:
        if self.logprobs is None:
            return None
        return {"content": [self._entry(token) for token in part.delta.tokens]}

    def _entry(self, scored: Scored) -> dict[str, Any]:
        top = [self._named(token, logprob) for token, logprob in scored.top]
        return {**self._named(scored.token, scored.logprob), "top_logprobs": top}

    def _named(self, token: int, logprob: float | None) -> dict[str, Any]:
        name = token_name(self.tokenizer, token)
        return {"token": name, "logprob": logprob, "bytes": token_bytes(self.tokenizer, token)}


def shape_chat(request: ChatRequest, plan: Plan, rules: Rules, tokenizer: Tokenizer, room: int) -> ChatShape:
    """The choices of a request whose rendered prompt is in `plan`; each may have `room` tokens."""
    params = request.params
    plans = []
    for number in range(params.n):
        sampling, limits = params.copy(number, room)
        plans.append(evolve(plan, sampling=sampling, limits=limits, logprobs=request.logprobs))
    envelope = Envelope(new_id("chatcmpl"), "chat.completion", rules.model)
    return ChatShape(params, tuple(plans), envelope, tokenizer, request.logprobs)
