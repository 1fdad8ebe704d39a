"""Drawing from large vocabularies: the fast ways give what the plain way gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mks.server.engine import draw as module
from mks.server.engine.draw import draw
from mks.server.engine.sampling_params import Sampling

SIZES = (1, 2, 127, 128, 129, 700, 5000, 49152)


def logits_of(seed: int, size: int, kind: str) -> np.ndarray:
    """Logits of several shapes: spread, peaked, with many equal ones, mostly ruled out, all the same."""
    random = np.random.default_rng(seed)
    spread = random.standard_normal(size, dtype=np.float32) * 3
    if kind == "peaked":
        spread[random.integers(size)] += 25
    elif kind == "equal":
        spread = np.round(spread)
    elif kind == "masked":
        spread[random.random(size) < 0.98] = -np.inf
        spread[random.integers(size)] = 1
    elif kind == "flat":
        spread[:] = -3
    return spread


def plain(logits: np.ndarray, params: Sampling, at: float) -> tuple[int, float]:
    """The token by full sorts in f64, and how far the quantile is from the next token's, relative to all."""
    size = len(logits)
    weights = np.exp((logits.astype(np.float64) - logits.max().astype(np.float64)) / params.temperature)
    order = np.lexsort((np.arange(size), -weights))
    keep = weights[order] >= params.min_p
    if params.top_k:
        keep &= np.arange(size) < params.top_k
    order = order[keep]
    margin = 1.0
    if params.top_p < 1:
        sums = np.cumsum(weights[order])
        goal = params.top_p * sums[-1]
        margin = float(np.abs(sums - goal).min() / sums[-1])
        order = order[: 1 + int(np.searchsorted(sums, goal))]
    kept = np.sort(order)
    sums = np.cumsum(weights[kept])
    goal = at * sums[-1]
    token = kept[min(int(np.searchsorted(sums, goal, side="right")), len(kept) - 1)]
    return int(token), min(margin, float(np.abs(sums - goal).min() / sums[-1]))


FILTERS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.05, 0.3, 1.0, 2.0]),
    top_k=st.sampled_from([0, 0, 2, 40, 3000, 10**6]),
    top_p=st.sampled_from([1.0, 1.0, 1e-6, 0.3, 0.9, 0.999]),
    min_p=st.sampled_from([0.0, 0.0, 0.02, 0.7]),
)


@settings(deadline=None, max_examples=400)
@given(
    st.integers(0, 10**6),
    st.sampled_from(SIZES),
    st.sampled_from(["spread", "peaked", "equal", "masked", "flat"]),
    FILTERS,
    st.floats(0, 1, exclude_max=True),
)
def test_drawing_is_what_full_sorts_give(seed: int, size: int, kind: str, params: Sampling, at: float) -> None:
    """For every shape of logits and combination of filters, unless the quantile is on the edge of two tokens."""
    logits = logits_of(seed, size, kind)
    token, margin = plain(logits, params, at)

    assert margin < 1e-5 or draw(logits, params, at) == token


@given(st.integers(0, 10**6), st.sampled_from(SIZES))
def test_the_ends_of_the_unit_interval(seed: int, size: int) -> None:
    """At 0 the first possible token, just below 1 the last; never one that is ruled out."""
    logits = logits_of(seed, size, "masked")
    possible = np.flatnonzero(np.isfinite(logits) & (logits > logits.max() - 80))

    assert draw(logits, Sampling(), 0.0) == possible[0]
    assert np.isfinite(logits[draw(logits, Sampling(), 1 - 2**-53)])


@given(st.integers(0, 10**6), st.sampled_from(SIZES), st.integers(1, 3000))
def test_candidates_hold_the_largest(seed: int, size: int, count: int) -> None:
    """All tokens above a bound, and enough of them, but not many more."""
    logits = logits_of(seed, size, "spread")
    ids = module._at_least(logits, count)

    assert len(ids) >= min(count, size)
    assert (np.diff(ids) > 0).all()
    left_out = np.setdiff1d(np.arange(size), ids)
    assert len(left_out) == 0 or logits[left_out].max() < logits[ids].min()
    assert size < 5000 or count > size // 8 or len(ids) < 12 * max(count, 100)


@pytest.mark.parametrize("change", ["bound", "order"])
def test_the_comparison_can_fail(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """With candidates missing or out of order, the comparison above finds it."""
    at_least = module._at_least
    wrong = {"bound": lambda logits, count: at_least(logits, count)[1:], "order": lambda logits, count: np.arange(40)}
    monkeypatch.setattr(module, "_at_least", wrong[change])
    params, found = Sampling(top_k=40), 0
    for seed in range(50):
        logits = logits_of(seed, 5000, "spread")
        token, margin = plain(logits, params, 0.02)
        found += margin > 1e-5 and draw(logits, params, 0.02) != token
    assert found
