"""How prompts get into rows: chunk by chunk, in turns, from what earlier prompts left where it can be used."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from ...dsl.decoder import Decoder
from .prefix import PrefixStore
from .sequence import Running


class Reader:
    """Reads prompts; `turn_ids` are the tokens that end a turn of a conversation."""

    def __init__(self, decoder: Decoder, store: PrefixStore | None, turn_ids: frozenset[int]) -> None:
        self._decoder = decoder
        self._store = store
        self._turn_ids = turn_ids

    def choose(self, rows: Sequence[Running | None]) -> int | None:
        """The row whose prompt has waited longest for its turn; one that another row reads already has none."""
        waiting = [
            (max(run.admitted, run.latest_read), run.queued, row)
            for row, run in enumerate(rows)
            if run is not None and self._may_read(run, rows)
        ]
        return min(waiting)[2] if waiting else None

    def _may_read(self, run: Running, rows: Sequence[Running | None]) -> bool:
        if run.cancelled or not run.reading:
            return False
        if self._store is None or run.began:
            return True
        ahead = [other for other in rows if other and other.began and other.reading and not other.cancelled]
        return not any(other.task.prompt == run.task.prompt for other in ahead)

    def read(self, row: int, run: Running) -> tuple[int, np.ndarray]:
        """The next tokens of a prompt: how many, and their logits as `Running.take_prompt` takes them.

        No tokens, where all of the prompt was kept and only its logits are wanted. Raises what the decoder raises.
        """
        run.latest_read = time.monotonic()
        if not run.began:
            run.began = True
            logits = self._resume(row, run)
            if logits is not None:
                return 0, logits
        count = self._chunk(run)
        ids = run.task.prompt[run.read : run.read + count]
        return count, self._decoder.prefill(row, ids, run.read, last_only=run.task.prompt_logprobs is None)

    def _resume(self, row: int, run: Running) -> np.ndarray | None:
        """Put what is kept of a prompt into the row; the logits after it where that is all of it."""
        match = None
        if self._store is not None and run.task.prompt_logprobs is None:
            match = self._store.find(run.task.prompt)
        if match is None:
            return None
        prefix, length = match
        self._decoder.restore(row, prefix.saved, length)
        run.resume(length)
        return None if run.reading else prefix.logits

    def _chunk(self, run: Running) -> int:
        """How much to read next; where only whole states can be kept, a chunk also ends where the last turn does."""
        count = min(self._decoder.chunk, len(run.task.prompt) - run.read)
        if self._store is None or self._store.cuts:
            return count
        end = run.turn_end(self._turn_ids) - run.read
        return end if 0 < end < count else count

    def keep(self, row: int, run: Running, logits: np.ndarray) -> None:
        """Keep what a prompt left in its row, at its end and where its last turn ended, before anything is added to it.

        `logits` are those of the last token read. Raises what the decoder raises.
        """
        store = self._store
        if store is None or run.task.prompt_logprobs is not None or run.cancelled or run.failed:
            return
        if run.reading and (store.cuts or run.read != run.turn_end(self._turn_ids)):
            return
        ids = run.task.prompt[: run.read]
        if store.wants(ids) and (saved := self._decoder.save(row)) is not None:
            store.keep(ids, saved, np.array(logits[-1:]))
