"""One answer without a server: `mks run`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from attrs import field, frozen

from ...dsl.decoder import Decoder
from ..engine.sampling_params import Sampling
from ..engine.scores import Scored
from ..engine.sequence import Running, Task
from ..text.answer import Answer, Delta, Limits, PieceOf, merge


@frozen
class Generated:
    """An answer; `logits` f32 `[prompt positions, vocab]` where they were asked for."""

    delta: Delta
    logits: np.ndarray | None = field(repr=False)

    @property
    def ids(self) -> list[int]:
        """The ids of all tokens, the one that ended the answer included."""
        return [token.token for token in self.delta.tokens]


class _Sink:
    """Gathers an answer and shows its text as it comes."""

    def __init__(self, answer: Answer, show: Callable[[str], None]) -> None:
        self.deltas: list[Delta] = []
        self._answer = answer
        self._show = show

    finish = None

    def began(self, cached: int) -> None:
        """Nothing was kept."""

    def scored(self, prompt: Sequence[Scored]) -> None:
        """Prompt scores are not asked for."""

    def emitted(self, tokens: Sequence[Scored]) -> bool:
        delta = self._answer.push(tokens)
        self.deltas.append(delta)
        self._show(delta.text)
        return self._answer.finished

    def ended(self) -> None:
        """Nothing was asked for but the prompt."""

    def failed(self, error: Exception) -> None:
        raise error


def generate(
    decoder: Decoder,
    prompt: Sequence[int],
    sampling: Sampling,
    limits: Limits,
    piece: PieceOf,
    *,
    show: Callable[[str], None] = lambda text: None,
    keep_logits: bool = False,
) -> Generated:
    """Answer one prompt on row 0 of `decoder`; `show` gets the text as it comes.

    `prompt` and `limits.max_tokens` together must fit the decoder's context.
    """
    sink = _Sink(Answer(limits, piece), show)
    run = Running(Task("run", tuple(prompt), sampling, limits.max_tokens, sink), decoder.vocab)
    rows: list[np.ndarray] = []
    finished = False
    while run.reading:
        ids = run.task.prompt[run.read : run.read + decoder.chunk]
        logits = decoder.prefill(0, ids, run.read, last_only=not keep_logits)
        if keep_logits:
            rows.append(np.array(logits, dtype=np.float32))
        finished = run.take_prompt(len(ids), logits)
    idle = decoder.rows - 1
    while not finished:
        asked = (0,) if run.needs_logits else ()
        step = decoder.step([[run.last], *[()] * idle], [run.position, *[0] * idle], asked)
        run.take_step(step.wait(), 0)
        finished = run.deliver()
    return Generated(merge(sink.deltas), np.concatenate(rows) if keep_logits else None)
