"""What chat and text responses have in common."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from attrs import field, frozen

from ...dsl.version import version
from ...models.text.tokenizer import Tokenizer
from ..engine.scores import Scored
from ..http.errors import ApiError
from ..http.jsonwrite import dump
from ..text.answer import Delta
from .generation import Part, Plan
from .params import Params

# What made the answer: with the same seed another one may answer otherwise.
FINGERPRINT = f"mks-{version()}"


@frozen
class Envelope:
    """The fields that all of a response's objects share."""

    id: str
    object: str
    model: str
    created: int = field(factory=lambda: int(time.time()))

    def wrap(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        """An object of the response."""
        head = {"id": self.id, "object": self.object, "created": self.created, "model": self.model}
        return {**head, "system_fingerprint": FINGERPRINT, "choices": choices, **more}


def new_id(prefix: str) -> str:
    """An id that no other response has."""
    return f"{prefix}{uuid.uuid4().hex}"


@frozen
class Usage:
    """Token counts of a request; `cached` of the prompt's were known from earlier requests.

    `reasoning` of the completion's are reasoning; None where the model has none.
    """

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int | None = None

    def body(self) -> dict[str, Any]:
        """The `usage` object."""
        thought = {} if self.reasoning is None else {"completion_tokens_details": {"reasoning_tokens": self.reasoning}}
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
            **thought,
        }


@frozen
class Framing:
    """How a stream is written: each of its events, one that tells of a failure, and what ends it."""

    event: Callable[[dict[str, Any]], bytes]
    failure: Callable[[ApiError], bytes]
    end: bytes


def data_event(value: Any) -> bytes:
    """An event of server-sent events that is only data."""
    return b"data: " + dump(value) + b"\n\n"


def named_event(name: str, value: Any) -> bytes:
    """An event with a name."""
    return f"event: {name}\n".encode() + data_event(value)


# As all endpoints but /v1/responses do it.
CHUNKS = Framing(data_event, lambda error: data_event(error.body()), b"data: [DONE]\n\n")


class Shape(Protocol):
    """How one kind of request is answered."""

    @property
    def plans(self) -> Sequence[Plan]:
        """What to generate, a choice each."""

    @property
    def params(self) -> Params:
        """The parameters of the request."""

    @property
    def id(self) -> str:
        """The id of the response."""

    @property
    def prompt_tokens(self) -> int:
        """The tokens of all prompts, each counted once."""

    @property
    def notes(self) -> dict[str, Any]:
        """What the access log says of it."""

    @property
    def framing(self) -> Framing:
        """How it is streamed."""

    def piece(self, token: int) -> bytes | str:
        """What a token adds to the text of an answer."""

    def whole(self, parts: Sequence[Part], usage: Usage) -> dict[str, Any]:
        """The whole response; `parts` has one part a choice, in order."""

    def opening(self) -> list[dict[str, Any]]:
        """The chunks that begin a stream."""

    def chunks(self, part: Part, first: bool) -> list[dict[str, Any]]:
        """The chunks for a part of a choice; `first`: its first part."""

    def closing(self, usage: Usage) -> dict[str, Any]:
        """The chunk that ends a stream where usage is wanted."""


def token_name(tokenizer: Tokenizer | None, token: int) -> str:
    """A token as it stands in log-probabilities."""
    return f"token_id:{token}" if tokenizer is None else tokenizer.spelling(token)


def token_scores(tokenizer: Tokenizer, scored: Scored) -> dict[str, Any]:
    """A token with its log-probability, and the likeliest beside it."""

    def named(token: int, logprob: float | None) -> dict[str, Any]:
        data = list(tokenizer.piece(token, skip_special_tokens=False))
        return {"token": token_name(tokenizer, token), "logprob": logprob, "bytes": data}

    return {**named(scored.token, scored.logprob), "top_logprobs": [named(*pair) for pair in scored.top]}


def prompt_logprobs(tokenizer: Tokenizer | None, prompt: Sequence[Scored], count: int) -> list[dict[str, Any] | None]:
    """The scores of a prompt's tokens by id, with the `count` likeliest, as vLLM shows them; none for the first."""
    return [None if scored.logprob is None else _by_id(tokenizer, scored, count) for scored in prompt]


def _by_id(tokenizer: Tokenizer | None, scored: Scored, count: int) -> dict[str, Any]:
    ranked = {token: (logprob, rank) for rank, (token, logprob) in enumerate(scored.top[:count], start=1)}
    own = {scored.token: (scored.logprob, scored.rank)}
    return {
        str(token): {"logprob": logprob, "rank": rank, "decoded_token": token_name(tokenizer, token)}
        for token, (logprob, rank) in (own | ranked | own).items()
    }


def token_ids(delta: Delta) -> list[int]:
    """The ids of all counted tokens of a delta."""
    return [token.token for token in delta.tokens]
