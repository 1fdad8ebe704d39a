"""Who holds a row, who waits for one, and how each goes."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable

from .observer import Observer
from .sequence import Running

log = logging.getLogger(__name__)


class Slots:
    """Rows and a queue. Every sequence that comes in leaves once, and the observer is told how.

    `flush` is called after sinks were told of something. The queue is to be touched under the engine's lock, rows are
    the engine's thread's own.
    """

    def __init__(self, rows: int, observer: Observer, flush: Callable[[], None]) -> None:
        self.rows: list[Running | None] = [None] * rows
        self.waiting: deque[Running] = deque()
        self.observer = observer
        self._flush = flush

    @property
    def taken(self) -> int:
        """How many rows are."""
        return len(self.rows) - self.rows.count(None)

    def running(self) -> list[Running]:
        """Those that hold a row."""
        return [run for run in list(self.rows) if run is not None]

    def admit(self, now: float) -> bool:
        """Empty the rows of cancelled sequences and give free rows to those that wait longest; whether any is taken."""
        for row, run in enumerate(self.rows):
            if run is not None and run.cancelled:
                self.leave(row, "abort", now)
            if self.rows[row] is None and self.waiting:
                self.rows[row] = run = self.waiting.popleft()
                run.admitted = now
        return self.taken > 0

    def leave(self, row: int, how: str, now: float) -> None:
        """Empty a row."""
        run, self.rows[row] = self.rows[row], None
        if run is not None:
            self.observer.ended(run, "error" if run.failed else how, now)

    def unqueue(self, runs: Collection[Running], how: str) -> None:
        """Take sequences out of the queue."""
        if runs:
            gone = {id(run) for run in runs}
            self.waiting = deque(run for run in self.waiting if id(run) not in gone)
            now = time.monotonic()
            for run in runs:
                self.observer.ended(run, how, now)

    def late(self, now: float) -> tuple[list[Running], list[int]]:
        """The sequences in the queue and the rows of those whose deadline is over."""
        waiting = [run for run in self.waiting if now >= run.task.deadline]
        return waiting, [row for row, run in enumerate(self.rows) if run and now >= run.task.deadline]

    def fail(self, rows: Iterable[int], error: Exception) -> None:
        """End the sequences in some rows and tell them why."""
        now = time.monotonic()
        for row in rows:
            run = self.rows[row]
            if run is not None:
                self.tell([run], error)
                self.leave(row, "error", now)

    def tell(self, runs: Iterable[Running], error: Exception) -> None:
        """Tell sequences of their failure, those that are still listened to and have not been told."""
        for run in runs:
            if not run.cancelled and not run.failed:
                run.failed = True
                try:
                    run.task.sink.failed(error)
                except Exception:
                    log.exception("sequence %s could not be told of its failure", run.task.id)
        self._flush()
