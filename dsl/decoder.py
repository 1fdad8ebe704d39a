"""The seam between what computes logits and what serves them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np


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
