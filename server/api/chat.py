"""`/v1/chat/completions`: reading a request, shaping its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve, field, frozen

from ...models.text.tokenizer import Tokenizer
from ..dialects.channels import Kind, Message, Piece, fold
from ..dialects.conversation import Conversation, Form, FormKind, Prompt
from ..dialects.tools import read_tools
from ..http.errors import bad_request
from ..http.jsonbody import Fields
from ..text.answer import Finish
from .generation import Part, Plan
from .messages import read_messages
from .params import MAX_ALTERNATIVES, Params, Rules, check_model, read_params
from .reader import Reader
from .shapes import CHUNKS, Envelope, Framing, Usage, new_id, prompt_logprobs, token_ids, token_scores

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


@frozen
class ChatRequest:
    """A checked request; its prompt is not written yet."""

    params: Params
    conversation: Conversation
    # How many likeliest tokens are shown with each token; None for no log-probabilities.
    logprobs: int | None
    include_reasoning: bool = True


def read_chat(fields: Fields, rules: Rules, *, developer_role: bool) -> ChatRequest:
    """Check the body of a chat request. Raises `ApiError`."""
    check_model(fields, rules)
    limit = "max_tokens" if fields.get("max_completion_tokens") is None else "max_completion_tokens"
    fields.integer("max_tokens", 1)
    params = read_params(fields, rules, max_tokens_field=limit, lowest_max_tokens=1)
    conversation = Conversation(
        messages=read_messages(fields, developer_role=developer_role),
        tools=read_tools(fields),
        form=read_form(fields),
        add_generation_prompt=fields.boolean("add_generation_prompt", True),
        variables=effort_variables(fields.choice("reasoning_effort", EFFORTS), fields.mapping("chat_template_kwargs")),
    )
    return ChatRequest(params, conversation, _logprobs(fields), fields.boolean("include_reasoning", True))


def effort_variables(effort: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """The template's switches with `reasoning_effort` among them; `none` turns thinking off."""
    if effort is None:
        return given
    switch = {"enable_thinking": False, "thinking": False} if effort == "none" else {}
    return {"reasoning_effort": effort, **switch, **given}


def _logprobs(fields: Fields) -> int | None:
    wanted = fields.boolean("logprobs")
    top = fields.integer("top_logprobs", 0, MAX_ALTERNATIVES)
    if top is not None and not wanted:
        raise bad_request("`top_logprobs` needs `logprobs: true`", "top_logprobs")
    return (top or 0) if wanted else None


def read_form(fields: Fields) -> Form:
    """Check `response_format`, or `json_schema`, which says the same in fewer words. Raises `ApiError` 400."""
    if fields.get("json_schema") is not None:
        if fields.get("response_format") is not None:
            raise bad_request("`json_schema` and `response_format` exclude each other; give one", "json_schema")
        return Form(FormKind.JSON_SCHEMA, fields.mapping("json_schema"))
    if fields.get("response_format") is None:
        return Form()
    wanted = Fields(fields.mapping("response_format"), "response_format.")
    kind = wanted.choice("type", [kind.value for kind in FormKind])
    if kind is None:
        raise bad_request("`response_format.type` is missing", "response_format.type")
    if kind != FormKind.JSON_SCHEMA.value:
        return Form(FormKind(kind), {"type": "object"})
    named = Fields(wanted.mapping("json_schema"), "response_format.json_schema.")
    named.text("name")
    named.boolean("strict")
    if named.get("schema") is None:
        raise bad_request("`response_format.json_schema.schema` is missing", "response_format.json_schema.schema")
    return Form(FormKind.JSON_SCHEMA, named.mapping("schema"))


@frozen
class ChatShape:
    """How a chat request is answered; all choices have the same prompt."""

    params: Params
    plans: tuple[Plan, ...]
    envelope: Envelope
    tokenizer: Tokenizer
    request: ChatRequest
    prompt: Prompt
    readers: tuple[Reader, ...] = field(repr=False)

    @property
    def id(self) -> str:
        """The id of the response."""
        return self.envelope.id

    @property
    def prompt_tokens(self) -> int:
        """The tokens of the conversation."""
        return len(self.plans[0].prompt)

    @property
    def notes(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    @property
    def framing(self) -> Framing:
        """Chunks."""
        return CHUNKS

    def piece(self, token: int) -> bytes | str:
        """The bytes of a token, or the mark that it is."""
        mark = self.prompt.marks.get(token)
        return self.tokenizer.piece(token, self.params.skip_special_tokens) if mark is None else mark

    def whole(self, parts: Sequence[Part], usage: Usage) -> dict[str, Any]:
        """The whole response."""
        choices = []
        for part in parts:
            message = fold(self.readers[part.index].push(part.delta))
            choices.append(
                {
                    "index": part.index,
                    "message": self._message(message),
                    "logprobs": self._logprobs(part),
                    **self._ids(part),
                    **self._finish(part),
                }
            )
        more = self._prompt_ids()
        if self.params.prompt_logprobs is not None:
            more["prompt_logprobs"] = prompt_logprobs(self.tokenizer, parts[0].prompt, self.params.prompt_logprobs)
        return self.envelope.wrap(choices, usage=self._usage(usage).body(), **more)

    def _message(self, message: Message) -> dict[str, Any]:
        shows_reasoning = self.request.include_reasoning and message.reasoning
        empty = None if message.calls or shows_reasoning else ""
        calls = [
            {"id": new_id("call_"), "type": "function", "function": {"name": name, "arguments": arguments}}
            for name, arguments in message.calls
        ]
        return {
            "role": "assistant",
            "content": message.content or empty,
            "refusal": None,
            **({"reasoning": message.reasoning, "reasoning_content": message.reasoning} if shows_reasoning else {}),
            **({"tool_calls": calls} if calls else {}),
        }

    def opening(self) -> list[dict[str, Any]]:
        """A chunk for each choice that names the role."""
        role = {"delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        return [self._chunk([{"index": index, **role}], **self._prompt_ids()) for index in range(len(self.plans))]

    def chunks(self, part: Part, first: bool) -> list[dict[str, Any]]:
        """A chunk for each piece that was added, and one for the end."""
        reader = self.readers[part.index]
        deltas: list[dict[str, Any]] = []
        for piece in reader.push(part.delta):
            deltas += self._delta(piece, reader)
        logprobs, ids = self._logprobs(part), self._ids(part)
        if not deltas and (logprobs is not None or ids):
            deltas.append({"content": ""})
        out = []
        for delta in deltas:
            out.append(
                self._chunk([{"index": part.index, "delta": delta, "logprobs": logprobs, **ids, "finish_reason": None}])
            )
            logprobs, ids = None, {}
        if part.delta.finish is not None:
            out.append(self._chunk([{"index": part.index, "delta": {}, "logprobs": None, **self._finish(part)}]))
        return out

    def _delta(self, piece: Piece, reader: Reader) -> list[dict[str, Any]]:
        if piece.kind is Kind.CONTENT:
            return [{"content": piece.text}]
        if piece.kind is Kind.REASONING:
            shows_reasoning = self.request.include_reasoning
            return [{"reasoning": piece.text, "reasoning_content": piece.text}] if shows_reasoning else []
        if piece.kind is Kind.CALL:
            reader.calls += 1
            function = {"name": piece.text, "arguments": ""}
            call = {"index": reader.calls - 1, "id": new_id("call_"), "type": "function", "function": function}
            return [{"tool_calls": [call]}]
        return [{"tool_calls": [{"index": reader.calls - 1, "function": {"arguments": piece.text}}]}]

    def closing(self, usage: Usage) -> dict[str, Any]:
        """The chunk with the usage."""
        return self._chunk([], usage=self._usage(usage).body())

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return evolve(self.envelope, object="chat.completion.chunk").wrap(choices, **more)

    def _finish(self, part: Part) -> dict[str, Any]:
        """A call that the model chose to make is the reason; one that the request named is no news."""
        reason: str | None = part.delta.finish
        by_choice = self.readers[part.index].called and not self.request.conversation.tools.named
        if reason == Finish.STOP and by_choice:
            reason = "tool_calls"
        return {"finish_reason": reason, "stop_reason": part.delta.stop_reason}

    def _usage(self, usage: Usage) -> Usage:
        if not any(reader.thinks for reader in self.readers):
            return usage
        return evolve(usage, reasoning=sum(reader.reasoning for reader in self.readers))

    def _ids(self, part: Part) -> dict[str, Any]:
        return {"token_ids": token_ids(part.delta)} if self.params.return_token_ids else {}

    def _prompt_ids(self) -> dict[str, Any]:
        return {"prompt_token_ids": list(self.plans[0].prompt)} if self.params.return_token_ids else {}

    def _logprobs(self, part: Part) -> dict[str, Any] | None:
        if self.request.logprobs is None:
            return None
        return {"content": [token_scores(self.tokenizer, token) for token in part.delta.tokens]}


def shape_chat(request: ChatRequest, prompt: Prompt, plan: Plan, rules: Rules, tokenizer: Tokenizer) -> ChatShape:
    """The choices of a request; `plan` is that of the first but for its sampling, and has its limits."""
    params, plans = request.params, []
    for number in range(params.n):
        sampling, limits = params.copy(number, plan.limits.max_tokens)
        constrained = evolve(sampling, grammar=plan.sampling.grammar)
        scores = params.prompt_logprobs if number == 0 else None
        one = evolve(plan, sampling=constrained, limits=limits, logprobs=request.logprobs, prompt_logprobs=scores)
        plans.append(one)
    envelope = Envelope(new_id("chatcmpl-"), "chat.completion", rules.model)
    readers = tuple(Reader(prompt.parser()) for _ in plans)
    return ChatShape(params, tuple(plans), envelope, tokenizer, request, prompt, readers)
