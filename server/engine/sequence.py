"""One sequence in the engine: what was asked, and how far it has come."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from attrs import field, frozen

from ...dsl.decoder import StepResult
from .sampling import Sampler
from .sampling_params import Sampling
from .scores import Scored, score


class Sink(Protocol):
    """Takes what a sequence gives. Called on the engine's thread, so it must not block."""

    @property
    def finish(self) -> str | None:
        """How the answer ended, once it has."""

    def began(self, cached: int) -> None:
        """The prompt is being read, but for `cached` tokens of it that were kept from before."""

    def scored(self, prompt: Sequence[Scored]) -> None:
        """The scores of the prompt's tokens, in order; in several parts where the prompt is read in several."""

    def emitted(self, tokens: Sequence[Scored]) -> bool:
        """More of the answer; true when it is finished and no more is wanted."""

    def ended(self) -> None:
        """A sequence of which no answer was wanted is through its prompt."""

    def failed(self, error: Exception) -> None:
        """The sequence ends here; nothing follows."""


@frozen
class Task:
    """What is asked for one sequence.

    `prompt` has at least one id and, with `max_tokens`, no more than the context. `logprobs` is the number of likeliest
    tokens to give with each token of the answer, `prompt_logprobs` with each of the prompt; None for no scores.
    `deadline` is when the sequence fails if it has not ended, in seconds of `time.monotonic`.
    """

    id: str
    prompt: tuple[int, ...] = field(repr=False)
    sampling: Sampling
    max_tokens: int
    sink: Sink = field(repr=False)
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    deadline: float = math.inf


class NotFinite(ArithmeticError):
    """The model gave logits that are no numbers."""


class Running:
    """A task under way: `read` of its prompt's tokens are in the decoder, `cached` of them from an earlier prompt.

    Tokens are first `chosen`, the latest being `last`, then handed on, or `emitted`, while the next step runs.
    `queued`, `admitted`, `latest_read`, `first` and `latest` are the times at which it came, got a row, had a part of
    its prompt read, handed on its first and its latest token.
    """

    def __init__(self, task: Task, vocab: int) -> None:
        self.task = task
        self.cancelled = False
        # Whether its sink was told of a failure.
        self.failed = False
        self.began = False
        self.read = 0
        self.cached = 0
        self.queued = time.monotonic()
        self.admitted = self.latest_read = self.first = self.latest = 0.0
        self.chosen = self.emitted = 0
        self.last = task.prompt[-1]
        # What was chosen, and the logits to score it by where that is wanted.
        self._due: list[tuple[int, np.ndarray | None]] = []
        self._sampler = Sampler(task.sampling, vocab, task.prompt)

    @property
    def reading(self) -> bool:
        """Whether part of the prompt is still to be read."""
        return self.read < len(self.task.prompt)

    @property
    def position(self) -> int:
        """Where the last chosen token goes."""
        return len(self.task.prompt) + self.chosen - 1

    @property
    def due(self) -> bool:
        """Whether tokens were chosen that are not handed on."""
        return bool(self._due)

    @property
    def ends(self) -> bool:
        """Whether what is due is probably the last; a stop string shows only in the text."""
        return self.due and (self.chosen >= self.task.max_tokens or self.last in self.task.sampling.end_ids)

    @property
    def needs_logits(self) -> bool:
        """Whether the next token cannot be chosen, or scored, by the likeliest id alone."""
        return self.task.logprobs is not None or not self._sampler.takes_likeliest

    def resume(self, length: int) -> None:
        """The first `length` tokens of the prompt are in the decoder already."""
        self.read = self.cached = length

    def take_prompt(self, count: int, logits: np.ndarray) -> bool:
        """Account for the next `count` prompt tokens; true when the task is finished.

        `logits` `[n, vocab]` are those of all of them, or of the last where no prompt scores are wanted.
        """
        task, first = self.task, self.read
        if first == self.cached:
            task.sink.began(self.cached)
        self.read += count
        if task.prompt_logprobs is not None:
            scores = [Scored(task.prompt[0])] if first == 0 else []
            following = task.prompt[first + 1 : self.read + 1]
            scores += [score(row, token, task.prompt_logprobs) for row, token in zip(logits, following, strict=False)]
            task.sink.scored(scores)
        if self.reading:
            return False
        if task.max_tokens == 0:
            task.sink.ended()
            return True
        self._choose(logits[-1], bool(np.isfinite(logits[-1].max())))
        return self.deliver()

    def take_step(self, step: StepResult, row: int) -> None:
        """Choose the next token by what a step gave in the row; `step` has its logits if they were needed."""
        finite = bool(step.finite[row, 0])
        if row in step.logits:
            self._choose(step.logits[row][-1], finite)
            return
        self._check(finite)
        token = int(step.ids[row, 0])
        self._sampler.take(token)
        self._add(token, None)

    def _choose(self, logits: np.ndarray, finite: bool) -> None:
        """Choose the next token from f32 `logits` `[vocab]`."""
        self._check(finite)
        self._add(self._sampler.choose(logits), None if self.task.logprobs is None else logits)

    def _check(self, finite: bool) -> None:
        if not finite:
            raise NotFinite(f"the model gave no finite logits at position {self.position + 1}")

    def _add(self, token: int, logits: np.ndarray | None) -> None:
        self.last = token
        self.chosen += 1
        self._due.append((token, logits))

    def deliver(self) -> bool:
        """Hand on what was chosen, with scores; true when the task is finished."""
        due, self._due = self._due, []
        self.emitted += len(due)
        top = self.task.logprobs or 0
        tokens = [Scored(token) if logits is None else score(logits, token, top) for token, logits in due]
        return self.task.sink.emitted(tokens) or self.emitted >= self.task.max_tokens

    def turn_end(self, ends: frozenset[int]) -> int:
        """Where the last whole turn of the conversation in the prompt ends; 0 where there is none."""
        prompt = self.task.prompt
        return next((at for at in range(len(prompt), 0, -1) if prompt[at - 1] in ends), 0)
