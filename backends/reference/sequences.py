"""What decoders know of their rows: what each may be saved as, and how a prompt becomes passes over one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import numpy as np
from attrs import frozen

from ...dsl.decoder import Saved
from ...dsl.model.instance import Instance
from .integers import integer, rows_of, token_ids
from .passes import passes, spans
from .saved_rows import RowStore, SavedRow
from .states import Arrays

type Array = np.ndarray[Any, Any]
# Ids int32 `[1, span]`, where they begin and how many are real, to logits f32 `[span, vocab]` or the last one's.
type Pass = Callable[[Array, int, int], Array]


@frozen
class StepInputs:
    """A step's ids int32 `[rows, tokens_per_row]`, where each row's begin and how many are real, int32 `[rows]`.

    `kept` int32 `[rows]` are how many tokens of a row's last step stay, where this one goes on amid them; else 0.
    `logits` are the rows that are given tokens and whose logits are wanted, in order.
    """

    ids: Array
    start: Array
    counts: Array
    kept: Array
    logits: tuple[int, ...]


class Sequences:
    """`rows` sequences of up to `context` tokens, whose ids are below `vocab`; prompts come in pieces of up to `chunk`.

    With `span` every pass is one of so many tokens, by one program. A row that nothing else has written holds a known
    number of tokens, and can be saved. Steps take up to `tokens_per_row` tokens of a row, and where the decoder
    `rewinds`, the next one may follow any of them. What is wrong with a call raises `ValueError` before anything
    changes.
    """

    def __init__(
        self,
        rows: int,
        context: int,
        chunk: int,
        span: int | None = None,
        *,
        vocab: int,
        tokens_per_row: int = 1,
        rewinds: bool = False,
    ) -> None:
        self.rows, self.context, self.vocab = rows, context, vocab
        self.tokens_per_row, self.rewinds = tokens_per_row, rewinds
        self.chunk = min(chunk, context)
        self.spans = spans(self.chunk, span)
        self._lengths: list[int | None] = [None] * rows
        # Where the latest call for a row began and ended; what a prefill that failed has left is as an empty row.
        self._latest: list[tuple[int, int]] = [(0, 0)] * rows

    def prefill(self, row: int, ids: Sequence[int], start: int, last_only: bool, read: Pass) -> Array:
        """What `Decoder.prefill` gives, by passes; `read` makes one, and gives one row of logits if `last_only`."""
        row, start = self.row(row), integer(start, "start")
        ids = token_ids(ids, self.vocab, f"the ids for row {row}")
        count, (_, end) = len(ids), self._latest[row]
        if not 1 <= count <= self.chunk or not 0 <= start <= self.context - count:
            raise ValueError(
                f"cannot read {count} ids at {start} into row {row}: "
                f"it takes 1 to {self.chunk} in a call, and has {self.context} positions"
            )
        if start not in (0, end):
            raise ValueError(f"row {row} cannot go on at position {start}: it holds {end} tokens")
        same = last_only and len(self.spans) == 1 and (start == 0 or self._lengths[row] == start)
        self._lengths[row], self._latest[row] = None, (0, 0)
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

    def step(
        self,
        tokens: Sequence[Sequence[int]],
        positions: Sequence[int],
        idle: int,
        logits: Collection[int] = (),
    ) -> StepInputs:
        """What a step is given. Of rows with tokens it is no longer known what they may be saved as.

        Ids that are none are 0; the position of a row that is given no token is `idle`.
        """
        asked = sorted(set(rows_of(logits, self.rows, "the rows whose logits are wanted")))
        given = self._given(tokens, positions)
        ids = np.zeros((self.rows, self.tokens_per_row), np.int32)
        start = np.full(self.rows, idle, np.int32)
        counts, kept = np.zeros((2, self.rows), np.int32)
        for row, (position, new) in given.items():
            ids[row, : len(new)], start[row], counts[row] = new, position, len(new)
            first, end = self._latest[row]
            kept[row] = position - first if first < position < end else 0
        for row, (position, new) in given.items():
            self.stepped(row, position, len(new))
        return StepInputs(ids, start, counts, kept, tuple(row for row in asked if row in given))

    def _given(self, tokens: Sequence[Sequence[int]], positions: Sequence[int]) -> dict[int, tuple[int, list[int]]]:
        """Position and ids of each row that is given some."""
        try:
            sizes = len(tokens), len(positions)
        except TypeError:
            raise ValueError("tokens and positions must be lists, an entry for each row") from None
        if sizes != (self.rows, self.rows):
            raise ValueError(f"{sizes[0]} lists of tokens and {sizes[1]} positions for {self.rows} rows")
        given = {}
        for row, (new, at) in enumerate(zip(tokens, positions, strict=True)):
            if ids := token_ids(new, self.vocab, f"the tokens of row {row}"):
                position = integer(at, f"the position of row {row}")
                self._check(row, len(ids), position)
                given[row] = position, ids
        return given

    def stepped(self, row: int, position: int, count: int) -> None:
        """A row has read so many tokens by steps, from a position on."""
        self._lengths[row], self._latest[row] = None, (position, position + count)

    def _check(self, row: int, count: int, position: int) -> None:
        if count > self.tokens_per_row:
            raise ValueError(f"cannot read {count} ids into row {row}: a step takes up to {self.tokens_per_row}")
        if not 0 <= position <= self.context - count:
            raise ValueError(f"cannot read {count} ids at {position} into row {row} of {self.context} positions")
        first, end = self._latest[row]
        if position not in (0, end) and not (self.rewinds and first < position < end):
            raise ValueError(f"row {row} cannot go on at position {position}: it holds {end} tokens")

    def row(self, row: int) -> int:
        """One of the rows."""
        return rows_of((integer(row, "row"),), self.rows, "row")[0]

    def length(self, row: int) -> int | None:
        """How many tokens a row holds, if it can be saved."""
        return self._lengths[self.row(row)]

    def restored(self, row: int, length: int) -> None:
        """A row holds so many tokens that were saved."""
        self._lengths[row], self._latest[row] = length, (length, length)

    def clear(self) -> None:
        """No row holds anything."""
        self._lengths = [None] * self.rows
        self._latest = [(0, 0)] * self.rows


def saved_row(saved: Saved, length: int, store: RowStore) -> SavedRow:
    """What was saved, if a row of `store` can be made to hold its first `length` tokens; raises `ValueError`."""
    length = integer(length, "length")
    if not isinstance(saved, SavedRow):
        raise ValueError(f"what is restored is what `save` gave, not {str(saved)[:80]}")
    if not 0 < length <= saved.length or (length < saved.length and not store.cuts):
        raise ValueError(f"cannot restore {length} tokens of {saved.length}")
    if not store.takes(saved):
        raise ValueError("cannot restore a row of a decoder with another model, context or chunk")
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
