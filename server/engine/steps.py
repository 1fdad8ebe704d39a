"""Steps of the sequences that are past their prompts; what one gives is handed on while the next one runs.

Only the choice of a token, which the next step needs, stands between two steps. What text it makes, whether that ends
the answer, its scores and who is told come after, beside the decoder's work. So a sequence that a stop string ends is
in one step more than it needs; that step's token is dropped, and whoever takes the row begins it anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

from attrs import frozen

from ...dsl.decoder import Decoder, PendingStep, StepResult
from .sequence import Running
from .slots import Slots

log = logging.getLogger(__name__)


@frozen
class Batch:
    """The sequences of a step, by row; None where a row has no part in it."""

    runs: Sequence[Running | None]

    @property
    def rows(self) -> list[int]:
        """The rows that have a part."""
        return [row for row, run in enumerate(self.runs) if run is not None]

    def begin(self, decoder: Decoder) -> PendingStep:
        """Begin to read each one's latest token. Raises what the decoder raises."""
        tokens = [[run.last] if run else [] for run in self.runs]
        positions = [run.position if run else 0 for run in self.runs]
        return decoder.step(tokens, positions, [row for row, run in enumerate(self.runs) if run and run.needs_logits])


class Tokens:
    """Chooses the tokens of sequences that hold rows, and hands them on; `flush` is called after sinks were told."""

    def __init__(self, slots: Slots, flush: Callable[[], None]) -> None:
        self._slots = slots
        self._flush = flush

    def batch(self) -> Batch:
        """Those that are past their prompts."""
        return Batch([run if run and not run.reading and not run.cancelled else None for run in self._slots.rows])

    def choose(self, batch: Batch, step: StepResult) -> None:
        """A token for each sequence of a step that still holds its row; one that ends with it is told at once."""
        for row, run in enumerate(batch.runs):
            if run is not None and self._slots.rows[row] is run:
                self.hand(row, run, partial(_choose, run, step, row))
        self._flush()

    def deliver(self) -> None:
        """Hand on all that was chosen."""
        for row, run in enumerate(self._slots.rows):
            if run is not None and run.due:
                self.hand(row, run, run.deliver)
        self._flush()

    def hand(self, row: int, run: Running, give: Callable[[], bool]) -> None:
        """Give a sequence what it is due; true from `give` ends it, and a failure on the way is that sequence's alone.

        It leaves its row where it ends.
        """
        if run.cancelled:
            return
        before = run.emitted
        try:
            done = give()
        except Exception as error:
            log.exception("sequence %s failed", run.task.id)
            self._slots.fail([row], error)
            return
        now = time.monotonic()
        if run.emitted > before:
            self._slots.observer.took(run, now)
            run.first, run.latest = run.first or now, now
        if done:
            self._slots.leave(row, run.task.sink.finish or "length", now)


def _choose(run: Running, step: StepResult, row: int) -> bool:
    run.take_step(step, row)
    return run.ends and run.deliver()
