"""Continuous batching: the thread that owns the decoder.

Sequences take a row as soon as one is free and leave it as soon as they end. A pass of the loop reads one chunk of one
prompt, then decodes one token for every sequence that is past its prompt, so that neither waits for the other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial

import numpy as np

from ..dsl.decoder import Decoder
from .sequence import Running, Task

log = logging.getLogger(__name__)

# After so many decoder calls in a row that failed, the decoder counts as broken; the next good one mends it.
PATIENCE = 3


class EngineFailure(Exception):
    """The decoder failed under a sequence, or the engine stopped before the sequence ended."""


class QueueFull(Exception):
    """As many sequences wait as may."""


class NotAccepting(Exception):
    """The engine is stopping."""


class Health(Enum):
    """What the engine can say of itself."""

    READY = "ready"
    STALLED = "stalled"
    FAILED = "failed"
    STOPPING = "stopping"


class Engine:
    """Runs tasks on a decoder; every method may be called from any thread."""

    def __init__(self, decoder: Decoder, *, max_waiting: int = 256, stall_seconds: float = 300.0) -> None:
        self.decoder = decoder
        self.max_waiting = max_waiting
        self._stall_seconds = stall_seconds
        self._changed = threading.Condition()
        self._waiting: deque[Running] = deque()
        self._rows: list[Running | None] = [None] * decoder.rows
        self._turn = 0
        self._failures = 0
        self._draining = False
        self._deadline = float("inf")
        self._progress = time.monotonic()
        self._thread = threading.Thread(target=self._loop, name="mks-engine", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def submit(self, tasks: Sequence[Task]) -> list[Running]:
        """Queue `tasks`, all or none; what comes back is for `cancel`.

        Raises `QueueFull` where as many wait as may, `NotAccepting` when stopping.
        """
        vocab = self.decoder.vocab
        runs = [Running(task, vocab) for task in tasks]
        with self._changed:
            if self._draining:
                raise NotAccepting
            free = self._rows.count(None)
            if len(self._waiting) >= self.max_waiting + free:
                raise QueueFull
            self._waiting.extend(runs)
            self._changed.notify()
        return runs

    def cancel(self, runs: Iterable[Running]) -> None:
        """Drop sequences: queued ones at once, running ones before the next step. No sink is told."""
        with self._changed:
            for run in runs:
                run.cancelled = True
            self._waiting = deque(run for run in self._waiting if not run.cancelled)
            self._changed.notify()

    def stop(self, seconds: float = 0.0) -> None:
        """Take no new work; what is not finished after `seconds` fails. Returns at once."""
        with self._changed:
            self._draining = True
            self._deadline = min(self._deadline, time.monotonic() + seconds)
            self._changed.notify()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread to end after `stop`; false if it did not in time."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def running(self) -> int:
        """How many sequences hold a row."""
        return self.decoder.rows - self._rows.count(None)

    @property
    def waiting(self) -> int:
        """How many sequences are queued."""
        return len(self._waiting)

    def health(self) -> Health:
        """Whether tasks are taken and get on."""
        if self._draining:
            return Health.STOPPING
        if self._failures >= PATIENCE or not self._thread.is_alive():
            return Health.FAILED
        if self.running and time.monotonic() - self._progress > self._stall_seconds:
            return Health.STALLED
        return Health.READY

    def _loop(self) -> None:
        while self._admit():
            self._read_chunk()
            self._decode_step()
            self._progress = time.monotonic()
        self._fail(self._drop_all(), EngineFailure("the server is stopping"))

    def _admit(self) -> bool:
        """Wait for work and seat it; false when it is time to end."""
        with self._changed:
            while True:
                self._rows = [None if run is None or run.cancelled else run for run in self._rows]
                for row, run in enumerate(self._rows):
                    if run is None and self._waiting:
                        self._rows[row] = self._waiting.popleft()
                busy = any(run is not None for run in self._rows)
                if self._draining and (not busy or time.monotonic() >= self._deadline):
                    return False
                if busy:
                    return True
                self._changed.wait()
                self._progress = time.monotonic()

    def _read_chunk(self) -> None:
        """Read the next chunk of one prompt; prompts take turns."""
        count = len(self._rows)
        order = [(self._turn + step) % count for step in range(count)]
        row = next((row for row in order if (run := self._rows[row]) and run.reading), None)
        run = None if row is None else self._rows[row]
        if row is None or run is None:
            return
        self._turn = row + 1
        ids = run.task.prompt[run.read : run.read + self.decoder.chunk]
        try:
            logits = self.decoder.prefill(row, ids, run.read, last_only=run.task.prompt_logprobs is None)
        except Exception as error:
            self._decoder_failed([row], error)
            return
        self._failures = 0
        self._hand(row, run, partial(run.take_prompt, len(ids)), logits)

    def _decode_step(self) -> None:
        """One token for every sequence that is past its prompt."""
        seated = [run if run and not run.reading else None for run in self._rows]
        live = [run is not None for run in seated]
        if not any(live):
            return
        tokens = [run.last if run else 0 for run in seated]
        positions = [run.position if run else 0 for run in seated]
        try:
            logits = self.decoder.decode(tokens, positions, live)
        except Exception as error:
            self._decoder_failed([row for row, alive in enumerate(live) if alive], error)
            return
        self._failures = 0
        for row, run in enumerate(seated):
            if run is not None:
                self._hand(row, run, run.take, logits[row])

    def _hand(self, row: int, run: Running, take: Callable[[np.ndarray], bool], logits: np.ndarray) -> None:
        """Give a sequence its logits; a failure on the way is that sequence's alone."""
        if run.cancelled:
            return
        try:
            done = take(logits)
        except Exception as error:
            log.exception("sequence %s failed", run.task.id)
            self._fail([run], error)
            done = True
        if done:
            self._rows[row] = None

    def _decoder_failed(self, rows: Sequence[int], error: Exception) -> None:
        """End the sequences that a failed decoder call was for."""
        self._failures += 1
        touched = [run for row in rows if (run := self._rows[row]) is not None]
        log.error("the decoder failed under %s", ", ".join(run.task.id for run in touched), exc_info=error)
        for row in rows:
            self._rows[row] = None
        self._fail(touched, EngineFailure("the model failed on this request"))

    def _fail(self, runs: Iterable[Running], error: Exception) -> None:
        for run in runs:
            if not run.cancelled:
                try:
                    run.task.sink.failed(error)
                except Exception:
                    log.exception("sequence %s could not be told of its failure", run.task.id)

    def _drop_all(self) -> list[Running]:
        """Empty rows and queue; what was in them."""
        with self._changed:
            left = [run for run in self._rows if run is not None] + list(self._waiting)
            self._rows = [None] * len(self._rows)
            self._waiting.clear()
        return left
