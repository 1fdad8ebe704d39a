"""`/v1/responses`: shaping an answer. Nothing of it is kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from attrs import evolve, field, frozen

from ...models.text.tokenizer import Tokenizer
from ..dialects.conversation import Prompt
from ..http.errors import ApiError
from ..text.answer import Finish
from .content_scores import ContentScores
from .generation import Part, Plan
from .params import Params, Rules
from .reader import Reader
from .responses_input import ResponsesRequest
from .responses_output import Output
from .shapes import Framing, Usage, named_event, new_id, token_scores


@frozen
class ResponsesShape:
    """How a request is answered."""

    request: ResponsesRequest
    plans: tuple[Plan, ...]
    model: str
    tokenizer: Tokenizer
    prompt: Prompt
    reader: Reader = field(repr=False)
    # Which tokens are content, where their scores are wanted.
    scores: ContentScores | None = field(default=None, repr=False)
    output: Output = field(factory=Output, repr=False)
    id: str = field(factory=lambda: new_id("resp_"))
    created: int = field(factory=lambda: int(time.time()))
    # How the answer ended, once it has.
    ended: list[Finish] = field(factory=list)

    @property
    def params(self) -> Params:
        """The parameters of the request."""
        return self.request.params

    @property
    def prompt_tokens(self) -> int:
        """The tokens of the conversation."""
        return len(self.plans[0].prompt)

    @property
    def notes(self) -> dict[str, Any]:
        """The tools that no server but the vendor's has."""
        return {"skipped_tools": list(self.request.skipped)} if self.request.skipped else {}

    @property
    def framing(self) -> Framing:
        """Events have names here, and the stream ends with the last of them."""
        return Framing(lambda event: named_event(event["type"], event), self._failure, b"")

    def piece(self, token: int) -> bytes | str:
        """The bytes of a token, or the mark that it is."""
        mark = self.prompt.marks.get(token)
        return self.tokenizer.piece(token, self.params.skip_special_tokens) if mark is None else mark

    def whole(self, parts: Sequence[Part], usage: Usage) -> dict[str, Any]:
        """The whole response."""
        self.chunks(parts[0], first=True)
        return self._response(usage)

    def opening(self) -> list[dict[str, Any]]:
        """Two events before any output."""
        started = self._response(None)
        return [
            self.output.event("response.created", response=started),
            self.output.event("response.in_progress", response=started),
        ]

    def chunks(self, part: Part, first: bool) -> list[dict[str, Any]]:
        """The events of what was added."""
        out = []
        for run, token in self.scores.push(part.delta) if self.scores else ():
            self.output.score(run, token_scores(self.tokenizer, token))
        for piece in self.reader.push(part.delta):
            out += self.output.push(piece)
        if part.delta.finish is not None:
            self.ended.append(part.delta.finish)
            out += self.output.close("incomplete" if part.delta.finish is Finish.LENGTH else "completed")
        return out

    def closing(self, usage: Usage) -> dict[str, Any]:
        """The last event, with the whole response."""
        response = self._response(usage)
        return self.output.event(f"response.{response['status']}", response=response)

    def _response(self, usage: Usage | None) -> dict[str, Any]:
        cut = Finish.LENGTH in self.ended
        status = "in_progress" if usage is None else "incomplete" if cut else "completed"
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "model": self.model,
            "output": list(self.output.items),
            "usage": None if usage is None else _usage(evolve(usage, reasoning=self.reader.reasoning)),
            **self.request.echoed,
        }

    def _failure(self, error: ApiError) -> bytes:
        failure = {"code": error.code or error.type, "message": error.message, "param": error.param}
        return named_event("error", self.output.event("error", **failure))


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }


def shape_responses(
    request: ResponsesRequest, prompt: Prompt, plan: Plan, rules: Rules, tokenizer: Tokenizer
) -> ResponsesShape:
    """How a request is answered; `plan` is complete but for the sampling parameters."""
    sampling, limits = request.params.copy(0, plan.limits.max_tokens)
    sampling = evolve(sampling, grammar=plan.sampling.grammar)
    limited = evolve(plan, sampling=sampling, limits=limits, logprobs=request.logprobs)
    scores = None if request.logprobs is None else ContentScores(prompt.parser())
    return ResponsesShape(request, (limited,), rules.model, tokenizer, prompt, Reader(prompt.parser()), scores)
