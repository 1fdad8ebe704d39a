"""How prompts get into rows: chunk by chunk, in turns, from what earlier prompts left where it can be used."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..dsl.decoder import Decoder
from .prefix import PrefixStore
from .sequence import Running


class Reader:
    """Reads prompts; `turn_ids` are the tokens that end a turn of a conversation."""

    def __init__(self, decoder: Decoder, store: PrefixStore | None, turn_ids: frozenset[int]) -> None:
        self._decoder = decoder
        self._store = store
        self._turn_ids = turn_ids
        self._next = 0

    def choose(self, rows: Sequence[Running | None]) -> int | None:
        """The row whose prompt is read next; they take turns, but for one that another row reads already."""
        order = [(self._next + step) % len(rows) for step in range(len(rows))]
        row = next((row for row in order if self._may_read(rows[row], rows)), None)
        self._next = self._next if row is None else row + 1
        return row

    def _may_read(self, run: Running | None, rows: Sequence[Running | None]) -> bool:
        if run is None or run.cancelled or not run.reading:
            return False
        if self._store is None or run.began:
            return True
        ahead = [other for other in rows if other and other.began and other.reading and not other.cancelled]
        return not any(other.task.prompt == run.task.prompt for other in ahead)

    def read(self, row: int, run: Running) -> tuple[int, np.ndarray]:
        """The next tokens of a prompt: how many, and their logits as `Running.take_prompt` takes them.

        No tokens, where all of the prompt was kept and only its logits are wanted. Raises what the decoder raises.
        """
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
        found = None
        if self._store is not None and run.task.prompt_logprobs is None:
            found = self._store.find(run.task.prompt)
        if found is None:
            return None
        kept, length = found
        self._decoder.restore(row, kept.saved, length)
        run.resume(length)
        return None if run.reading else kept.logits

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
