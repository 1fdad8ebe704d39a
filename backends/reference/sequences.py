"""What decoders know of their rows: what each may be saved as, and how a prompt becomes passes over one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ...dsl.decoder import Saved
from ...dsl.model.instance import Instance
from .passes import passes, spans
from .saved_rows import SavedRow
from .states import Arrays

type Array = np.ndarray[Any, Any]
# Ids int32 `[1, span]`, where they begin and how many are real, to logits f32 `[span, vocab]` or the last one's.
type Pass = Callable[[Array, int, int], Array]


class Sequences:
    """`rows` sequences of up to `context` tokens; prompts come in pieces of up to `chunk`.

    With `span` every pass is one of so many tokens, by one program. A row that nothing else has written holds a known
    number of tokens, and can be saved. Steps take up to `tokens_per_row` tokens of a row, and where the decoder
    `rewinds`, the next one may follow any of them.
    """

    def __init__(
        self,
        rows: int,
        context: int,
        chunk: int,
        span: int | None = None,
        *,
        tokens_per_row: int = 1,
        rewinds: bool = False,
    ) -> None:
        self.rows, self.context = rows, context
        self.tokens_per_row, self.rewinds = tokens_per_row, rewinds
        self.chunk = min(chunk, context)
        self.spans = spans(self.chunk, span)
        self._lengths: list[int | None] = [None] * rows
        # Where the latest call for a row began and ended; a row that is not known may go on anywhere.
        self._latest: list[tuple[int, int] | None] = [None] * rows

    def prefill(self, row: int, ids: Sequence[int], start: int, last_only: bool, read: Pass) -> Array:
        """What `Decoder.prefill` gives, by passes; `read` makes one, and gives one row of logits if `last_only`."""
        count = len(ids)
        if not 1 <= count <= self.chunk or not 0 <= start <= self.context - count or not 0 <= row < self.rows:
            raise ValueError(f"cannot read {count} ids at {start} into row {row}")
        same = last_only and len(self.spans) == 1 and (start == 0 or self._lengths[row] == start)
        self._lengths[row] = self._latest[row] = None
        logits, at = [], 0
        for span, real in passes(count, self.spans):
            tokens = np.zeros((1, span), np.int32)
            tokens[0, :real] = ids[at : at + real]
            result = read(tokens, start + at, real)
            logits.append(result if last_only else result[:real])
            at += real
        self._lengths[row] = start + count if same else None
        self._latest[row] = (start + count, start + count)
        return logits[-1] if last_only or len(logits) == 1 else np.concatenate(logits)

    def step(self, tokens: Sequence[Sequence[int]], positions: Sequence[int], idle: int) -> tuple[Array, Array, Array]:
        """A step's ids int32 `[rows, tokens_per_row]`, where each row's begin and how many are real, int32 `[rows]`.

        Ids that are none are 0; the position of a row that is given no token is `idle`. Of the others it is no longer
        known what they may be saved as. Raises `ValueError` where a row cannot go on there.
        """
        if not len(tokens) == len(positions) == self.rows:
            raise ValueError(f"{len(tokens)} lists of tokens and {len(positions)} positions for {self.rows} rows")
        ids = np.zeros((self.rows, self.tokens_per_row), np.int32)
        at = np.full(self.rows, idle, np.int32)
        counts = np.array([len(each) for each in tokens], np.int32)
        for row, given in enumerate(tokens):
            if given:
                self._check(row, len(given), positions[row])
                ids[row, : len(given)], at[row] = given, positions[row]
        for row, given in enumerate(tokens):
            if given:
                self.stepped(row, positions[row], len(given))
        return ids, at, counts

    def kept(self, tokens: Sequence[Sequence[int]], positions: Sequence[int]) -> Array:
        """How many tokens of each row's last step stay, int32 `[rows]`, where a step goes on amid them; else 0."""
        spans = zip(tokens, positions, self._latest, strict=False)
        return np.array(
            [at - was[0] if given and was and was[0] < at < was[1] else 0 for given, at, was in spans], np.int32
        )

    def stepped(self, row: int, position: int, count: int) -> None:
        """A row has read so many tokens by steps, from a position on."""
        self._lengths[row], self._latest[row] = None, (position, position + count)

    def _check(self, row: int, count: int, position: int) -> None:
        if count > self.tokens_per_row:
            raise ValueError(f"cannot read {count} ids into row {row}: a step takes up to {self.tokens_per_row}")
        if not 0 <= position <= self.context - count:
            raise ValueError(f"cannot read {count} ids at {position} into row {row} of {self.context} positions")
        first, end = self._latest[row] or (position, position)
        if position not in (0, end) and not (self.rewinds and first < position < end):
            raise ValueError(f"row {row} cannot go on at position {position}: it holds {end} tokens")

    def length(self, row: int) -> int | None:
        """How many tokens a row holds, if it can be saved."""
        return self._lengths[row]

    def restored(self, row: int, length: int) -> None:
        """A row holds so many tokens that were saved."""
        self._lengths[row], self._latest[row] = length, (length, length)

    def clear(self) -> None:
        """No row holds anything."""
        self._lengths = [None] * self.rows
        self._latest = [None] * self.rows


def saved_row(saved: Saved, length: int, cuts: bool) -> SavedRow:
    """What was saved, if a row can be made to hold its first `length` tokens."""
    part = length < saved.length
    if not isinstance(saved, SavedRow) or not 0 < length <= saved.length or (part and not cuts):
        raise ValueError(f"cannot restore {length} tokens of {saved.length}")
    return saved


def vocabulary(instance: Instance) -> int:
    """How many token ids there are."""
    return instance.length(instance.model.decode.types["logits"].shape[0])


def lost(states: Arrays) -> bool:
    """Whether a call took the rows' memory: it has it back only where it ends well or fails before it begins."""
    if any(array.is_deleted() for array in states.values()):
        return True
    try:
        jax.block_until_ready(states)
    except Exception:  # whatever made the call fail comes out of each array that it would have made
        return True
    return False
