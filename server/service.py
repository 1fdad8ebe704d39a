"""A model behind its API: from a checked request to sequences in the engine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from attrs import field, frozen

from .answer import Limits
from .chat import ChatShape, read_chat, render_chat, shape_chat
from .completions import CompletionRequest, CompletionShape, read_completion
from .engine import Engine, NotAccepting, QueueFull
from .errors import ApiError, bad_request, overloaded, stopping
from .generation import Generation, Plan, Wakeups
from .jsonbody import Fields
from .params import Rules, check_ids, check_model
from .sampling import Sampling
from .shapes import Envelope, Shape, new_id
from .template import ChatTemplate
from .tokenizer import Tokenizer

# A text of so many characters for each position of the context is measured by its beginning first.
LONG = 16

RETRY_SECONDS = 2


@frozen
class Service:
    """What the endpoints need; nothing here changes but the engine."""

    engine: Engine
    rules: Rules
    tokenizer: Tokenizer | None = field(repr=False)
    template: ChatTemplate | None = field(repr=False)
    wakeups: Wakeups = field(repr=False)
    # How long a request may take.
    seconds: float = math.inf
    created: int = field(factory=lambda: int(time.time()))

    def card(self) -> dict[str, Any]:
        """The model as `/v1/models` shows it."""
        head = {"id": self.rules.model, "object": "model", "created": self.created, "owned_by": "mks"}
        return {**head, "root": self.rules.model, "parent": None, "max_model_len": self.rules.context}

    def chat(self, body: dict[str, Any]) -> ChatShape:
        """Check, render and tokenise a chat request. Raises `ApiError`; may take a while."""
        tokenizer, template = self._tokenizer(), self._template()
        request = read_chat(Fields(body), self.rules, template)
        ids = self._encode(render_chat(request, template, tokenizer), tokenizer.encode_rendered, "messages")
        room = self._room(len(ids), request.params.max_tokens, None, "messages")
        plan = Plan(ids, Sampling(), Limits(0))
        return shape_chat(request, plan, self.rules, tokenizer, room)

    def completion(self, body: dict[str, Any]) -> CompletionShape:
        """Check and tokenise a completion request. Raises `ApiError`; may take a while."""
        request = read_completion(Fields(body), self.rules)
        plans = [plan for prompt in request.prompts for plan in self._completion_plans(request, prompt)]
        envelope = Envelope(new_id("cmpl"), "text_completion", self.rules.model)
        return CompletionShape(request.params, tuple(plans), envelope, self.tokenizer, request.echo, request.logprobs)

    def _completion_plans(self, request: CompletionRequest, prompt: str | tuple[int, ...]) -> list[Plan]:
        if isinstance(prompt, str):
            text: str | None = prompt
            encode = partial(self._tokenizer().encode, add_special_tokens=request.add_special_tokens)
            ids = self._encode(prompt, encode, "prompt")
        else:
            text, ids = None, prompt
        room = self._room(len(ids), request.params.max_tokens, 16, "prompt")
        scored = request.logprobs if request.echo else None
        return [
            Plan(ids, *request.params.copy(number, room), request.logprobs, scored, text)
            for number in range(request.params.n)
        ]

    def start(self, shape: Shape) -> Generation:
        """Queue a request's sequences. Raises `ApiError` 429 or 503. To be called on the event loop."""
        tokenizer, skip = self.tokenizer, shape.params.skip_special_tokens
        piece = _no_text if tokenizer is None else partial(tokenizer.piece, skip_special_tokens=skip)
        generation = Generation(self.engine, self.wakeups, shape.id, shape.plans, piece, self.seconds)
        try:
            generation.start()
        except QueueFull:
            raise overloaded(RETRY_SECONDS) from None
        except NotAccepting:
            raise stopping() from None
        return generation

    def tokenize(self, body: dict[str, Any]) -> dict[str, Any]:
        """The ids of a prompt or of a conversation. Raises `ApiError`."""
        fields, tokenizer = Fields(body), self._tokenizer()
        check_model(fields, self.rules)
        if fields.get("messages") is not None:
            template = self._template()
            ids = tokenizer.encode_rendered(render_chat(read_chat(fields, self.rules, template), template, tokenizer))
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

    def _template(self) -> ChatTemplate:
        if self.template is None:
            raise bad_request("this checkpoint has no chat template; use /v1/completions", "messages")
        return self.template

    def _encode(self, text: str, encode: Callable[[str], list[int]], param: str) -> tuple[int, ...]:
        """The ids of a prompt; one that is far too long is refused before all of it is tokenised."""
        limit = LONG * self.rules.context
        if len(text) > limit and (cut := _last_space(text[:limit])):
            count = len(encode(text[:cut]))
            if count > self.rules.context:
                raise self._too_long(f"at least {count}", param)
        return tuple(encode(text))

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


def _no_text(token: int) -> bytes:
    return b""


def _last_space(text: str) -> int:
    """Where the last run of white space begins, at which every tokenizer cuts; 0 where there is none."""
    before, *last = text.rsplit(maxsplit=1) or [""]
    return len(before) if last else 0
