"""Log-probabilities."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mks.server.engine.scores import LOWEST, largest, score


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30), st.integers(0, 40))
def test_largest_is_a_stable_sort_cut_short(values: list[int], count: int) -> None:
    """Falling order, equal values by index, never more than there are."""
    expected = sorted(range(len(values)), key=lambda at: (-values[at], at))[:count]

    assert largest(np.array(values, dtype=np.float32), count).tolist() == expected


def test_scores_are_a_log_softmax() -> None:
    """Probabilities sum to one; the likeliest come first."""
    logits = np.array([1.0, 3.0, 2.0], dtype=np.float32)
    scored = score(logits, 2, top=3)

    assert [token for token, _ in scored.top] == [1, 2, 0]
    assert np.isclose(sum(np.exp(logprob) for _, logprob in scored.top), 1)
    assert scored.logprob == dict(scored.top)[2]


def test_impossible_tokens_have_a_finite_score() -> None:
    """Minus infinity is not JSON."""
    logits = np.array([0.0, -np.inf], dtype=np.float32)

    assert score(logits, 1, top=2).logprob == LOWEST
    assert score(logits, 0, top=2).top[1] == (1, LOWEST)
