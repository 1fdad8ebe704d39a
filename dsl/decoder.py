"""The seam between what computes logits and what serves them.

A step is begun and waited for later, so that its caller works while it runs. What stays on the device until it is asked
for are logits: `[rows, vocab]` is megabytes, and a greedy row needs only the likeliest id.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from attrs import field, frozen

if TYPE_CHECKING:
    import numpy as np


class Saved(Protocol):
    """What a row held, kept outside of the decoder; never changes."""

    @property
    def length(self) -> int:
        """How many tokens it holds."""

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""


@frozen
class StepResult:
    """What a step gave, by row and by token of the row; undefined where a row was given no such token.

    `ids` int32 `[rows, tokens_per_row]` are the likeliest next ids, of equal ones the lowest. `finite` bool, of the
    same shape, says whether the logits are numbers: none is NaN or +inf, and not all are -inf. `logits` has, for the
    rows that were asked for, f32 `[tokens of the row, vocab]`.
    """

    ids: np.ndarray
    finite: np.ndarray
    logits: Mapping[int, np.ndarray] = field(repr=False)


class PendingStep(Protocol):
    """A step under way."""

    def wait(self) -> StepResult:
        """What it gives, as soon as it has ended; the same every time. Raises where the step failed."""


class Decoder(Protocol):
    """A model with room for several sequences, one a row.

    A row's logits do not depend on what the other rows hold, nor on how many tokens these are given. All calls come
    from one thread at a time; each takes effect after those before it, whether or not a step was waited for.
    Rows, positions and ids are integers, Python's or numpy's. A call with anything that is wrong, such as a row or an
    id that there is not, raises `ValueError` and changes nothing. After a call that failed on the way, its rows begin
    anew at position 0, or are restored.
    """

    @property
    def rows(self) -> int:
        """How many sequences are held at once."""

    @property
    def context(self) -> int:
        """How many positions a row holds, prompt and answer together."""

    @property
    def vocab(self) -> int:
        """How many token ids there are; ids run from 0."""

    @property
    def chunk(self) -> int:
        """The most tokens that one `prefill` call takes."""

    @property
    def tokens_per_row(self) -> int:
        """The most tokens of a row that one `step` takes."""

    @property
    def rewinds(self) -> bool:
        """Whether a row can go on after any token of its last step; else only after the last one."""

    def prefill(self, row: int, ids: Sequence[int], start: int, last_only: bool = False) -> np.ndarray:
        """Read `ids` (1..chunk of them) into `row` at positions `start ..`; f32 logits `[len(ids), vocab]`.

        With `last_only` those of the last id alone, `[1, vocab]`.
        `start` is 0, which forgets whatever the row held, or the row's length so far.
        """

    def step(
        self, tokens: Sequence[Sequence[int]], positions: Sequence[int], logits: Collection[int] = ()
    ) -> PendingStep:
        """Begin to read the next tokens of some rows.

        `tokens` (a list for each of `rows`) are 1..tokens_per_row ids, or none: such a row is left as it is.
        `positions` is where a row's first one goes: at 0, which forgets whatever the row held, at its length so far,
        or, where the decoder `rewinds`, after any token of the row's last step, whose later ones are forgotten then.
        The position of a row that is given none does not matter. `logits` are the rows whose logits are wanted, of
        which those that are given no tokens are left out.
        """

    @property
    def cuts(self) -> bool:
        """Whether `restore` may take less of a sequence than was saved; recurrent states cannot be cut."""

    def save(self, row: int) -> Saved | None:
        """What `row` holds now, after `prefill` calls.

        None where going on from there would not give the very bits that reading the whole sequence again gives.
        """

    def restore(self, row: int, saved: Saved, length: int) -> None:
        """Make `row` hold the first `length` tokens of what was saved, all of them unless `cuts`.

        What was saved may be of another decoder, if that has the same model, context and chunk.
        """

    def reset(self) -> bool:
        """Make the decoder usable after a call that failed; whether rows that the call was not for are unharmed.

        Where they are not, all rows are empty.
        """
