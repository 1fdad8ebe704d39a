"""What decoders know of their rows: what each may be saved as, and how a prompt becomes passes over one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...dsl.decoder import Saved
from ...dsl.model.instance import Instance
from .keeping import KeptRow
from .passes import passes, spans
from .states import Arrays

type Array = np.ndarray[Any, Any]
# Ids int32 `[1, span]`, where they begin and how many are real, to logits f32 `[span, vocab]` or the last one's.
type Pass = Callable[[Array, int, int], Array]


class Sequences:
    """`rows` sequences of up to `context` tokens; prompts come in pieces of up to `chunk`.

    With `span` every pass is one of so many tokens, by one program. A row that nothing else has written holds a known
    number of tokens, and can be saved.
    """

    def __init__(self, rows: int, context: int, chunk: int, span: int | None = None) -> None:
        self.rows, self.context = rows, context
        self.chunk = min(chunk, context)
        self.spans = spans(self.chunk, span)
        self._lengths: list[int | None] = [None] * rows

    def prefill(self, row: int, ids: Sequence[int], start: int, last_only: bool, read: Pass) -> Array:
        """What `Decoder.prefill` gives, by passes; `read` makes one, and gives one row of logits if `last_only`."""
        count = len(ids)
        if not 1 <= count <= self.chunk or not 0 <= start <= self.context - count or not 0 <= row < self.rows:
            raise ValueError(f"cannot read {count} ids at {start} into row {row}")
        same = last_only and len(self.spans) == 1 and (start == 0 or self._lengths[row] == start)
        self._lengths[row] = None
        logits, at = [], 0
        for span, real in passes(count, self.spans):
            tokens = np.zeros((1, span), np.int32)
            tokens[0, :real] = ids[at : at + real]
            found = read(tokens, start + at, real)
            logits.append(found if last_only else found[:real])
            at += real
        self._lengths[row] = start + count if same else None
        return logits[-1] if last_only or len(logits) == 1 else np.concatenate(logits)

    def step(self, tokens: Sequence[int], positions: Sequence[int], live: Sequence[bool], idle: int) -> (
            tuple[Array, Array]):  # fmt: skip
        """Ids and positions, int32 `[rows]`, of a step; 0 and `idle` of rows that are not live.

        Of live rows it is no longer known what they hold.
        """
        chosen, given = np.asarray(live, bool), np.asarray(positions, np.int32)
        if not len(chosen) == len(tokens) == len(positions) == self.rows or not self._within(given[chosen]):
            raise ValueError(f"positions {list(positions)} for {self.rows} rows of {self.context}")
        self._lengths = [None if alive else held for alive, held in zip(chosen, self._lengths, strict=True)]
        ids, at = np.where(chosen, np.asarray(tokens, np.int32), 0), np.where(chosen, given, idle)
        return ids.astype(np.int32), at.astype(np.int32)

    def _within(self, positions: Array) -> bool:
        return bool(((positions >= 0) & (positions < self.context)).all())

    def length(self, row: int) -> int | None:
        """How many tokens a row holds, if it can be saved."""
        return self._lengths[row]

    def restored(self, row: int, length: int) -> None:
        """A row holds so many tokens that were saved."""
        self._lengths[row] = length

    def clear(self) -> None:
        """No row holds anything."""
        self._lengths = [None] * self.rows


def kept_row(saved: Saved, length: int, cuts: bool) -> KeptRow:
    """What was saved, if a row can be made to hold its first `length` tokens."""
    part = length < saved.length
    if not isinstance(saved, KeptRow) or not 0 < length <= saved.length or (part and not cuts):
        raise ValueError(f"cannot restore {length} tokens of {saved.length}")
    return saved


def vocabulary(instance: Instance) -> int:
    """How many token ids there are."""
    return instance.length(instance.model.decode.types["logits"].shape[0])


def lost(states: Arrays) -> bool:
    """Whether a call took the rows' memory: it has it back only where it ends well or fails before it begins."""
    return any(array.is_deleted() for array in states.values())
