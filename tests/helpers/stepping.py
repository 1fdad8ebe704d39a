"""Steps of one token a row that are waited for at once, with all their logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mks.dsl.decoder import Decoder


def decode(decoder: Decoder, tokens: Sequence[int], positions: Sequence[int], live: Sequence[bool]) -> np.ndarray:
    """Logits f32 `[rows, vocab]` after one token of each live row; NaN where a row is not live.

    The ids that the decoder says are the likeliest are those of the logits.
    """
    asked = [row for row, alive in enumerate(live) if alive]
    given = [[token] if alive else [] for token, alive in zip(tokens, live, strict=True)]
    found = decoder.step(given, positions, asked).wait()
    assert sorted(found.logits) == asked
    out = np.full((decoder.rows, decoder.vocab), np.nan, np.float32)
    for row, (logits,) in found.logits.items():
        out[row] = logits
        assert found.finite[row, 0] == np.isfinite(logits.max())
        assert found.ids[row, 0] == logits.argmax() or not found.finite[row, 0]
    return out
