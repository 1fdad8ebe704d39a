"""Continuous batching: the thread that owns the decoder.

Sequences take a row as soon as one is free and leave it as soon as they end. A pass of the loop reads one chunk of one
prompt, then decodes one token for every sequence that is past its prompt, so that neither waits for the other. While a
step runs, the tokens of the one before are handed on.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial

from ...dsl.decoder import Decoder
from .chunked_prefill import Reader
from .failures import DeadlinePassed, EngineFailure, NotAccepting, QueueFull
from .observer import Observer
from .prefix import PrefixStore
from .sequence import Running, Task
from .slots import Slots
from .steps import Tokens

log = logging.getLogger(__name__)

# After so many decoder calls in a row that failed, the decoder counts as broken; the next good one mends it.
PATIENCE = 3

# Seconds before a decoder that could not be set up again is tried once more.
PAUSE = 1.0


class Health(Enum):
    """What the engine can say of itself."""

    READY = "ready"
    STALLED = "stalled"
    FAILED = "failed"
    STOPPING = "stopping"


class Engine:
    """Runs tasks on a decoder; every method may be called from any thread.

    `flush` is called on the engine's threads after everything that sinks may have been told. `prefix_cache_bytes` is
    the room for cached prompt prefixes, 0 for none, and `turn_ids` are the tokens that end a turn of a conversation.
    """

    def __init__(
        self,
        decoder: Decoder,
        *,
        max_waiting: int = 256,
        stall_seconds: float = 300.0,
        prefix_cache_bytes: int = 0,
        turn_ids: Iterable[int] = (),
        observer: Observer | None = None,
        flush: Callable[[], None] = lambda: None,
    ) -> None:
        self.decoder = decoder
        self.max_waiting = max_waiting
        self.store = PrefixStore(prefix_cache_bytes, decoder.cuts) if prefix_cache_bytes else None
        self._reader = Reader(decoder, self.store, frozenset(turn_ids))
        self._flush = flush
        self._slots = Slots(decoder.rows, observer or Observer(), flush)
        self._tokens = Tokens(self._slots, flush)
        self._stall_seconds = stall_seconds
        self._changed = threading.Condition()
        self._rows = self._slots.rows
        self._failures = 0
        self._draining = False
        self._deadline = math.inf
        self._progress = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="mks-engine", daemon=True)
        self._watchdog = threading.Thread(target=self._watch, name="mks-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()
        self._watchdog.start()

    def submit(self, tasks: Sequence[Task]) -> list[Running]:
        """Queue `tasks`, all or none; what comes back is for `cancel`.

        Raises `QueueFull` where as many wait as may, `NotAccepting` when stopping.
        """
        vocab = self.decoder.vocab
        with self._changed:
            self._check_open()
        runs = [Running(task, vocab) for task in tasks]
        with self._changed:
            self._check_open()
            self._slots.waiting.extend(runs)
            self._changed.notify()
        return runs

    def _check_open(self) -> None:
        if self._draining:
            raise NotAccepting
        if len(self._slots.waiting) >= self.max_waiting + self._rows.count(None):
            raise QueueFull

    def cancel(self, runs: Iterable[Running]) -> None:
        """Drop sequences: queued ones at once, running ones before the next step. No sink is told."""
        with self._changed:
            for run in runs:
                run.cancelled = True
            self._slots.unqueue([run for run in self._slots.waiting if run.cancelled], "abort")
            self._changed.notify()

    def stop(self, seconds: float = 0.0) -> None:
        """Take no new work; queued sequences fail now, those not finished after `seconds` then. Returns at once."""
        with self._changed:
            self._draining = True
            self._deadline = min(self._deadline, time.monotonic() + seconds)
            queued = list(self._slots.waiting)
            self._slots.unqueue(queued, "abort")
            self._changed.notify()
        self._slots.tell(queued, NotAccepting())

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread to end after `stop`; false if it did not in time."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def observer(self) -> Observer:
        """Who is told of the work."""
        return self._slots.observer

    @observer.setter
    def observer(self, observer: Observer) -> None:
        self._slots.observer = observer

    @property
    def running(self) -> int:
        """How many sequences hold a row."""
        return self._slots.taken

    @property
    def waiting(self) -> int:
        """How many sequences are queued."""
        return len(self._slots.waiting)

    @property
    def usage(self) -> float:
        """The part of all rows' positions that is in use."""
        used = sum(run.read + run.emitted for run in self._slots.running())
        return used / (self.decoder.rows * self.decoder.context)

    def health(self) -> Health:
        """Whether tasks are taken and get on."""
        if self._draining:
            return Health.STOPPING
        if self._failures >= PATIENCE or not self._thread.is_alive():
            return Health.FAILED
        return Health.STALLED if self._stalled() else Health.READY

    def _stalled(self) -> bool:
        return self.running > 0 and time.monotonic() - self._progress > self._stall_seconds

    def _loop(self) -> None:
        while self._admit():
            try:
                self._read_chunk()
                self._decode_step()
            except Exception as error:  # a fault of ours; what it was about is unknown
                self._decoder_failed(range(len(self._rows)), error)
            self._progress = time.monotonic()
        self._tokens.deliver()
        with self._changed:
            left = [row for row, run in enumerate(self._rows) if run is not None]
        self._slots.fail(left, EngineFailure("the server is stopping"))
        self._over.set()

    def _admit(self) -> bool:
        """Wait for work and admit it; false when it is time to end."""
        while True:
            with self._changed:
                now = time.monotonic()
                late, rows = self._slots.late(now)
                self._slots.unqueue(late, "error")
                if not late and not rows:
                    admitted = self._slots.admit(now)
                    if self._draining and (not admitted or now >= self._deadline):
                        return False
                    if admitted:
                        return True
                    idle = not self._changed.wait(PAUSE if self._failures else None)
                    self._progress = time.monotonic()
                else:
                    idle = False
            if rows:
                self._tokens.deliver()
            self._slots.tell(late, DeadlinePassed())
            self._slots.fail(rows, DeadlinePassed())
            if idle:
                self._try()

    def _try(self) -> None:
        """See whether a decoder that failed works again: nobody may be sent to find out."""
        try:
            self.decoder.prefill(0, [0], 0, last_only=True)
            self._failures = 0
        except Exception as error:
            self._decoder_failed([], error)

    def _read_chunk(self) -> None:
        """Read the next chunk of one prompt."""
        row = self._reader.choose(self._rows)
        run = None if row is None else self._rows[row]
        if row is None or run is None:
            return
        self._tokens.deliver()  # a chunk may take long
        fresh = not run.began
        try:
            count, logits = self._reader.read(row, run)
        except Exception as error:
            self._decoder_failed([row], error)
            return
        self._failures = 0
        if fresh:
            self._slots.observer.began(run)
        self._slots.observer.passed(count)
        self._tokens.hand(row, run, partial(run.take_prompt, count, logits))
        self._flush()
        try:
            self._reader.keep(row, run, logits)
        except Exception as error:
            self._decoder_failed([row], error)

    def _decode_step(self) -> None:
        """One token for every sequence that is past its prompt; meanwhile those of the step before are handed on."""
        batch = self._tokens.batch()
        failure = result = None
        try:
            step = batch.begin(self.decoder) if batch.rows else None
        except Exception as error:
            step, failure = None, error
        self._tokens.deliver()
        if step is not None:
            try:
                result = step.wait()
            except Exception as error:
                failure = error
        if failure is not None:
            self._decoder_failed(batch.rows, failure)
        elif result is not None:
            self._failures = 0
            self._slots.observer.passed(len(batch.rows))
            self._tokens.choose(batch, result)

    def _decoder_failed(self, rows: Iterable[int], error: Exception) -> None:
        """End what a failed decoder call was for, set the decoder up again, and end what was lost with it."""
        self._failures += 1
        self._fail_touched(rows, error)
        if not self._reset():
            self._fail_touched([row for row, run in enumerate(self._rows) if run is not None and run.began], error)

    def _fail_touched(self, rows: Iterable[int], error: Exception) -> None:
        touched = {row: run.task.id for row in rows if (run := self._rows[row]) is not None}
        if touched:
            log.error("the decoder failed under %s", ", ".join(touched.values()), exc_info=error)
            self._slots.fail(touched, EngineFailure("the model failed on this request"))

    def _reset(self) -> bool:
        """Make the decoder usable, however often it takes; whether the other rows are unharmed."""
        unharmed = True
        while not self._draining:
            try:
                return self.decoder.reset() and unharmed
            except Exception:
                log.exception("the decoder could not be set up again")
            unharmed = False
            self._failures = max(self._failures, PATIENCE)
            with self._changed:
                self._changed.wait(PAUSE)
        return False

    def _watch(self) -> None:
        """Where the decoder does not come back, say so, and let nobody wait for it."""
        while not self._over.wait(min(self._stall_seconds / 4, 5.0)):
            if self._stalled():
                with self._changed:
                    stuck = [run for run in self._slots.running() if not run.failed]
                if stuck:
                    ids = ", ".join(run.task.id for run in stuck)
                    log.error("the decoder has not answered for %.0f s; under it: %s", self._stall_seconds, ids)
                    self._slots.tell(stuck, EngineFailure("the model does not answer"))
                    self.cancel(stuck)
