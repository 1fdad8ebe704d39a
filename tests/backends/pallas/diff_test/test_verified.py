"""What is compared can be found wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mks.backends.pallas.diff_test.report import LIMITS, Choice, Comparison, Errors, Verified, errors

LIMIT = LIMITS["f32"]


@pytest.mark.parametrize(
    ("value", "reference", "same"),
    [
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], True),
        ([1.0, 2.0, 3.0001], [1.0, 2.0, 3.0], True),
        ([1.0, 2.0, 3.1], [1.0, 2.0, 3.0], False),
        ([-1.0, -2.0, -3.0], [1.0, 2.0, 3.0], False),
        ([2.0, 4.0, 6.0], [1.0, 2.0, 3.0], False),  # the cosine alone does not see it
        ([0.0, 0.0], [0.0, 0.0], True),
        ([0.0, 1e-9], [0.0, 0.0], False),
        ([0.0, 0.0], [1.0, 0.0], False),
        ([float("nan"), 2.0], [1.0, 2.0], False),
        ([float("nan"), 0.0], [0.0, 0.0], False),
        ([float("inf"), 2.0], [1.0, 2.0], False),
        ([1.0, float("-inf")], [1.0, float("-inf")], True),
        ([1.0, float("inf")], [1.0, float("-inf")], False),
        ([2.0, float("-inf")], [1.0, float("-inf")], False),
        ([1.0, 2.0], [1.0, float("-inf")], False),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_errors(value: Any, reference: Any, same: bool) -> None:
    """Directions, sizes, and what is no number."""
    found = errors(value, reference)
    assert found.within(LIMIT) == same
    assert (found.badness(LIMIT) <= 1) == same


def test_one_wrong_number_among_many() -> None:
    """The largest difference tells, where cosine and mean are as they should be."""
    reference = np.random.default_rng(1).normal(size=100_000)
    value = reference.copy()
    value[7] += 0.02
    found = errors(value, reference)

    assert found.rms < LIMIT.rms
    assert not found.within(LIMIT)


def test_which_part_is_red() -> None:
    """The one with a value beyond the limits; an id that differs is enough to fail."""
    bad = Errors(0.5, 1.0, 1.0)
    good = Comparison("mlp", "h", 0, 0, 0, Errors(), carried=bad)
    wrong = Comparison("attention", "q", 1, 0, 0, bad)
    choice = Choice(0, 0, 5, 0, 7, 7, agrees=True)

    assert Verified(LIMIT, (good,), (choice,)).ok
    found = Verified(LIMIT, (good, wrong, Comparison("attention", "h", 1, 0, 0, Errors())), (choice,))
    assert (found.ok, found.red, found.worst("attention")) == (False, ("attention",), wrong)
    assert not Verified(LIMIT, (good,), (Choice(0, 0, 5, 0, 7, 8, agrees=False),)).ok
