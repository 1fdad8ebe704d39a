"""The seam between what computes logits and what serves them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

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


class Decoder(Protocol):
    """A model with room for several sequences, one a row.

    A row's logits do not depend on what the other rows hold. All calls come from one thread at a time.
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

    def prefill(self, row: int, ids: Sequence[int], start: int, last_only: bool = False) -> np.ndarray:
        """Read `ids` (1..chunk of them) into `row` at positions `start ..`; f32 logits `[len(ids), vocab]`.

        With `last_only` those of the last id alone, `[1, vocab]`.
        `start` is 0, which forgets whatever the row held, or the row's length so far.
        """

    def decode(self, tokens: Sequence[int], positions: Sequence[int], live: Sequence[bool]) -> np.ndarray:
        """One token for each live row (lists of `rows`); f32 logits `[rows, vocab]`, undefined where not live."""

    @property
    def cuts(self) -> bool:
        """Whether `restore` may take less of a sequence than was saved; recurrent states cannot be cut."""

    def save(self, row: int) -> Saved | None:
        """What `row` holds now, after `prefill` calls.

        None where going on from there would not give the very bits that reading the whole sequence again gives.
        """

    def restore(self, row: int, saved: Saved, length: int) -> None:
        """Make `row` hold the first `length` tokens of what was saved, all of them unless `cuts`."""

    def reset(self) -> bool:
        """Make the decoder usable after a call that failed; whether rows that the call was not for are unharmed.

        Where they are not, all rows are empty.
        """
