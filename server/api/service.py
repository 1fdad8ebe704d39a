"""A model behind its API: from a checked request to sequences in the engine."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from typing import Any

from attrs import field, frozen

from ...models.text.tokenizer import Tokenizer, TooManyTokens
from ..dialects.conversation import Conversation, Dialect, Encode, FormKind, Prompt
from ..dialects.tools import Tools
from ..engine.engine import Engine
from ..engine.failures import NotAccepting, QueueFull
from ..engine.grammar import Grammar, GrammarBusy, GrammarError, Grammars
from ..engine.sampling_params import Sampling
from ..http.errors import ApiError, bad_request, busy, overloaded, stopping
from ..http.jsonbody import Fields
from ..text.answer import Limits
from .builders import Builders
from .chat import ChatRequest, ChatShape, read_chat, shape_chat
from .completions import CompletionRequest, CompletionShape, read_completion
from .generation import Generation, Plan, Wakeups
from .params import Params, Rules, check_ids, check_model
from .respond import off_loop
from .responses import ResponsesShape, shape_responses
from .responses_input import read_responses
from .shapes import Envelope, Shape, new_id

log = logging.getLogger(__name__)

# A text of so many characters for each position of the context is measured by its beginning first.
LONG = 16

RETRY_SECONDS = 2


@frozen
class Service:
    """What the endpoints need; nothing here changes but the engine."""

    engine: Engine
    rules: Rules
    tokenizer: Tokenizer | None = field(repr=False)
    dialect: Dialect | None = field(repr=False)
    grammars: Grammars | None = field(repr=False)
    wakeups: Wakeups = field(repr=False)
    # How long a request may take.
    seconds: float = math.inf
    builders: Builders = field(factory=Builders, repr=False)
    created: int = field(factory=lambda: int(time.time()))

    def card(self) -> dict[str, Any]:
        """The model as `/v1/models` shows it."""
        head = {"id": self.rules.model, "object": "model", "created": self.created, "owned_by": "mks"}
        return {**head, "root": self.rules.model, "parent": None, "max_model_len": self.rules.context}

    def chat(self, body: dict[str, Any]) -> ChatShape:
        """Check, render and tokenise a chat request. Raises `ApiError`; may take a while."""
        request = self._read_chat(Fields(body))
        prompt, plan = self._plan(request.conversation, request.params, "messages")
        return shape_chat(request, prompt, plan, self.rules, self._tokenizer())

    def responses(self, body: dict[str, Any]) -> ResponsesShape:
        """The same for `/v1/responses`."""
        request = read_responses(Fields(body), self.rules, developer_role=self._dialect().developer_role)
        prompt, plan = self._plan(request.conversation, request.params, "input")
        return shape_responses(request, prompt, plan, self.rules, self._tokenizer())

    def _plan(self, conversation: Conversation, params: Params, param: str) -> tuple[Prompt, Plan]:
        """A conversation's prompt, and the plan for its answer but for the sampling parameters."""
        prompt = self._dialect().prompt(conversation)
        ids = self._encode(prompt.text, prompt.encode, param)
        room = self._room(len(ids), params.max_tokens, None, param)
        grammar = self._grammar(prompt, conversation, params)
        return prompt, Plan(ids, Sampling(grammar=grammar), Limits(room))

    def _read_chat(self, fields: Fields) -> ChatRequest:
        return read_chat(fields, self.rules, developer_role=self._dialect().developer_role)

    def _grammar(self, prompt: Prompt, conversation: Conversation, params: Params) -> Grammar | None:
        """What the answer is held to, built before anything of it is sent. Raises `ApiError` 400 or 503.

        What a schema says beyond what a grammar can hold is no reason to refuse a tool that is not strict.
        """
        tools = conversation.tools
        if self.grammars is None or not (tools.guided or conversation.form.kind is not FormKind.TEXT):
            return None
        param = "tools" if tools.guided else "response_format"
        if params.ignore_eos:
            raise bad_request(f"`ignore_eos` does not go with `{param}`, whose answers have an end", "ignore_eos")
        try:
            return self._built(prompt, tools)
        except GrammarError as error:
            reason = str(error)
        for looser in tools.looser():
            if looser != tools:
                with contextlib.suppress(GrammarError):
                    grammar = self._built(prompt, looser)
                    log.warning("the tools' schemas are enforced only in part: %s", reason)
                    return grammar
            tools = looser
        raise bad_request(f"`{param}` cannot be enforced: {reason}", param)

    def _built(self, prompt: Prompt, tools: Tools) -> Grammar | None:
        """Raises `GrammarError` or `ApiError` 503."""
        assert self.grammars is not None
        try:
            built = [self.grammars.build(text) for text in prompt.grammars(tools)]
        except GrammarBusy:
            raise busy(RETRY_SECONDS) from None
        return built[-1] if built else None

    def completion(self, body: dict[str, Any]) -> CompletionShape:
        """Check and tokenise a completion request. Raises `ApiError`; may take a while."""
        request = read_completion(Fields(body), self.rules)
        plans = [plan for prompt in request.prompts for plan in self._completion_plans(request, prompt)]
        envelope = Envelope(new_id("cmpl-"), "text_completion", self.rules.model)
        return CompletionShape(request.params, tuple(plans), envelope, self.tokenizer, request.echo, request.logprobs)

    def _completion_plans(self, request: CompletionRequest, prompt: str | tuple[int, ...]) -> list[Plan]:
        if isinstance(prompt, str):
            text: str | None = prompt
            tokenizer = self._tokenizer()

            def encode(text: str, most: int | None = None) -> list[int]:
                return tokenizer.encode(text, request.add_special_tokens, most)

            ids = self._encode(prompt, encode, "prompt")
        else:
            text, ids = None, prompt
        room = self._room(len(ids), request.params.max_tokens, 16, "prompt")
        wanted = [request.logprobs if request.echo else None, request.params.prompt_logprobs]
        scored = max((count for count in wanted if count is not None), default=None)
        return [
            Plan(ids, *request.params.copy(number, room), request.logprobs, scored, text)
            for number in range(request.params.n)
        ]

    async def start(self, shape: Shape, request_id: str = "") -> Generation:
        """Queue a request's sequences. Raises `ApiError` 429 or 503. To be called on the event loop.

        `request_id` is the client's, which only logs show: other requests may have the same.
        """
        name = f"{shape.id} ({request_id})" if request_id else shape.id
        generation = Generation(self.engine, self.wakeups, name, shape.plans, shape.piece, self.seconds)
        try:
            await off_loop(shape.prompt_tokens * len(shape.plans), generation.start)
        except QueueFull:
            raise overloaded(RETRY_SECONDS) from None
        except NotAccepting:
            raise stopping() from None
        self.engine.observer.asked(shape.params.n, [plan.limits.max_tokens for plan in shape.plans])
        return generation

    def tokenize(self, body: dict[str, Any]) -> dict[str, Any]:
        """The ids of a prompt or of a conversation. Raises `ApiError`."""
        fields, tokenizer = Fields(body), self._tokenizer()
        check_model(fields, self.rules)
        if fields.get("messages") is not None:
            written = self._dialect().prompt(self._read_chat(fields).conversation)
            ids = written.encode(written.text)
        else:
            prompt = fields.text("prompt")
            if prompt is None:
                raise bad_request("`prompt` or `messages` is missing", "prompt")
            ids = tokenizer.encode(prompt, fields.boolean("add_special_tokens", True))
        strings = fields.boolean("return_token_strs")
        return {
            "count": len(ids),
            "max_model_len": self.rules.context,
            "tokens": ids,
            "token_strs": [tokenizer.spelling(token) for token in ids] if strings else None,
        }

    def detokenize(self, body: dict[str, Any]) -> dict[str, Any]:
        """The text of token ids. Raises `ApiError`."""
        fields, tokenizer = Fields(body), self._tokenizer()
        check_model(fields, self.rules)
        ids = fields.array("tokens")
        if ids is None:
            raise bad_request("`tokens` is missing", "tokens")
        return {"prompt": tokenizer.decode(check_ids(ids, self.rules.vocab, "tokens"), skip_special_tokens=False)}

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise bad_request("this checkpoint has no tokenizer; only token ids in /v1/completions are answered")
        return self.tokenizer

    def _dialect(self) -> Dialect:
        self._tokenizer()
        if self.dialect is None:
            raise bad_request("this checkpoint has no chat template; use /v1/completions", "messages")
        return self.dialect

    def _encode(self, text: str, encode: Encode, param: str) -> tuple[int, ...]:
        """The ids of a prompt. Raises `ApiError` 400 where the context has no room for it.

        What cannot fit is refused before it is tokenised, what is far too long before all of it is.
        """
        most, limit = self.rules.context, LONG * self.rules.context
        least = self._tokenizer().least(text)
        if least > most:
            raise self._too_long(f"at least {least}", param)
        try:
            if len(text) > limit and (cut := _last_space(text[:limit])):
                encode(text[:cut], most)
            return check_ids(encode(text, most), self.rules.vocab, param)
        except TooManyTokens as error:
            raise self._too_long(f"at least {error.count}", param) from None

    def _room(self, prompt: int, max_tokens: int | None, default: int | None, param: str) -> int:
        """How many tokens the answer may have. Raises `ApiError` 400 where the context has no room for them."""
        if prompt == 0:
            raise bad_request(f"`{param}` gives no tokens", param)
        room = self.rules.context - prompt
        wanted = max_tokens if max_tokens is not None else min(room, default or room)
        if room < min(wanted, 1) or (max_tokens is None and room < 1):
            raise self._too_long(str(prompt), param)
        if wanted > room:
            raise bad_request(
                f"this model's maximum context length is {self.rules.context} tokens; your prompt contains {prompt} "
                f"and you ask for {wanted} more, {prompt + wanted} together",
                "max_tokens",
                "context_length_exceeded",
            )
        return wanted

    def _too_long(self, count: str, param: str) -> ApiError:
        return bad_request(
            f"this model's maximum context length is {self.rules.context} tokens; your prompt contains {count} tokens, "
            "which leaves no room for an answer",
            param,
            "context_length_exceeded",
        )


def _last_space(text: str) -> int:
    """Where the last run of white space begins, at which every tokenizer cuts; 0 where there is none."""
    before, *last = text.rsplit(maxsplit=1) or [""]
    return len(before) if last else 0
