"""`/v1/completions`: reading a request, shaping its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import field, frozen

from ...models.text.tokenizer import Tokenizer
from ..engine.scores import Scored
from ..http.errors import bad_request, unsupported
from ..http.jsonbody import Fields
from ..text.stream import Utf8Stream
from .generation import Part, Plan
from .params import MAX_ALTERNATIVES, MAX_CHOICES, Params, Rules, check_ids, check_model, read_params
from .shapes import CHUNKS, Envelope, Framing, Usage, prompt_logprobs, token_ids, token_name


@frozen
class CompletionRequest:
    """A checked request; a prompt is a text, not yet tokenised, or ids."""

    params: Params
    prompts: tuple[str | tuple[int, ...], ...] = field(repr=False)
    echo: bool
    logprobs: int | None
    add_special_tokens: bool


def read_completion(fields: Fields, rules: Rules) -> CompletionRequest:
    """Check the body of a completion request. Raises `ApiError`."""
    check_model(fields, rules)
    echo = fields.boolean("echo")
    params = read_params(fields, rules, max_tokens_field="max_tokens", lowest_max_tokens=0)
    if params.max_tokens == 0 and not echo:
        raise bad_request("`max_tokens` must be 1 or more, or `echo` true", "max_tokens")
    for name in ("tools", "response_format", "json_schema"):
        if fields.get(name) is not None:
            raise unsupported(name)
    prompts = _prompts(fields, rules)
    if len(prompts) * params.n > MAX_CHOICES:
        raise bad_request(f"`prompt` and `n` ask for more than {MAX_CHOICES} choices", "prompt")
    return CompletionRequest(
        params=params,
        prompts=prompts,
        echo=echo,
        logprobs=fields.integer("logprobs", 0, MAX_ALTERNATIVES),
        add_special_tokens=fields.boolean("add_special_tokens", True),
    )


def _prompts(fields: Fields, rules: Rules) -> tuple[str | tuple[int, ...], ...]:
    """A string, a list of strings, a list of ids or a list of such lists."""
    value = fields.get("prompt")
    if isinstance(value, str) or (isinstance(value, list) and value and type(value[0]) is int):
        value = [value]
    if not isinstance(value, list) or not value:
        raise fields.wrong("prompt", "a string, a list of strings, token ids or lists of token ids, and not empty")
    if all(isinstance(item, str) for item in value):
        if not rules.texts:
            raise bad_request("this checkpoint has no tokenizer; `prompt` must be token ids", "prompt")
        return tuple(value)
    if all(isinstance(item, list) for item in value):
        if not all(value):
            raise bad_request("`prompt` holds an empty list of token ids", "prompt")
        return tuple(check_ids(item, rules.vocab, "prompt") for item in value)
    raise bad_request("`prompt` must not mix strings, token ids and other things", "prompt")


@frozen
class CompletionShape:
    """How a completion request is answered: choices by prompt, then by number of copy."""

    params: Params
    plans: tuple[Plan, ...]
    envelope: Envelope
    tokenizer: Tokenizer | None
    echo: bool
    logprobs: int | None

    @property
    def id(self) -> str:
        """The id of the response."""
        return self.envelope.id

    @property
    def prompt_tokens(self) -> int:
        """The tokens of all prompts."""
        return sum(len(plan.prompt) for plan in self.plans[:: self.params.n])

    @property
    def notes(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    @property
    def framing(self) -> Framing:
        """Chunks."""
        return CHUNKS

    def piece(self, token: int) -> bytes:
        """The bytes of a token; none without a tokenizer."""
        return b"" if self.tokenizer is None else self.tokenizer.piece(token, self.params.skip_special_tokens)

    def whole(self, parts: Sequence[Part], usage: Usage) -> dict[str, Any]:
        """The whole response."""
        choices = [self._choice(part, first=True) for part in parts]
        return self.envelope.wrap(choices, usage=usage.body())

    def opening(self) -> list[dict[str, Any]]:
        """Nothing: a text stream begins with text."""
        return []

    def chunks(self, part: Part, first: bool) -> list[dict[str, Any]]:
        """One chunk, if there is anything to tell."""
        choice = self._choice(part, first)
        has_content = choice["text"] or choice["logprobs"] or choice.get("token_ids") or choice["finish_reason"]
        return [self.envelope.wrap([choice])] if has_content else []

    def closing(self, usage: Usage) -> dict[str, Any]:
        """The chunk with the usage."""
        return self.envelope.wrap([], usage=usage.body())

    def _choice(self, part: Part, first: bool) -> dict[str, Any]:
        plan, delta = self.plans[part.index], part.delta
        echoed = self._echoed(plan) if self.echo else ""
        choice: dict[str, Any] = {"index": part.index, "text": (echoed if first else "") + delta.text}
        choice["logprobs"] = self._logprobs(part, len(echoed), first)
        if self.params.return_token_ids:
            if first:
                choice["prompt_token_ids"] = list(plan.prompt)
            choice["token_ids"] = token_ids(delta)
        if self.params.prompt_logprobs is not None:
            choice["prompt_logprobs"] = prompt_logprobs(self.tokenizer, part.prompt, self.params.prompt_logprobs)
        return {**choice, "finish_reason": delta.finish, "stop_reason": delta.stop_reason}

    def _echoed(self, plan: Plan) -> str:
        if plan.text is not None:
            return plan.text
        return "" if self.tokenizer is None else self.tokenizer.decode(plan.prompt, skip_special_tokens=False)

    def _logprobs(self, part: Part, before: int, first: bool) -> dict[str, Any] | None:
        if self.logprobs is None:
            return None
        tokens, offsets = list(part.delta.tokens), [before + offset for offset in part.delta.offsets]
        if self.echo and first:
            tokens = [*part.prompt, *tokens]
            offsets = [*self._prompt_offsets(self.plans[part.index]), *offsets]
        return {
            "tokens": [token_name(self.tokenizer, token.token) for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [self._top(token) for token in tokens],
            "text_offset": offsets,
        }

    def _top(self, scored: Scored) -> dict[str, float] | None:
        if scored.logprob is None:
            return None
        pairs = [*scored.top[: self.logprobs], (scored.token, scored.logprob)]
        return {token_name(self.tokenizer, token): logprob for token, logprob in pairs}

    def _prompt_offsets(self, plan: Plan) -> list[int]:
        """Where in the echoed text each token of the prompt begins."""
        if self.tokenizer is None:
            return [0] * len(plan.prompt)
        skip = self.tokenizer.decode(plan.prompt, skip_special_tokens=False) != self._echoed(plan)
        stream, offsets, length = Utf8Stream(), [], 0
        for token in plan.prompt:
            offsets.append(length)
            length += len(stream.push(self.tokenizer.piece(token, skip_special_tokens=skip)))
        return offsets
