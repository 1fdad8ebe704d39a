"""What is drawn: the same for a seed, of every construct, and hardly anything that the checker refuses."""

from __future__ import annotations

from collections import Counter

import pytest
from helpers.drawing import TINY, WIDE, Profile, draw
from helpers.drawing.counts import CONSTRUCTS, KINDS


def test_a_seed_gives_the_same() -> None:
    """Twice, and another one gives something else."""
    assert draw(7) == draw(7)
    assert draw(7).text != draw(8).text
    assert draw(7, WIDE).text != draw(7, TINY).text


@pytest.mark.parametrize(("profile", "count"), [(TINY, 120), pytest.param(WIDE, 300, marks=pytest.mark.slow)])
def test_few_are_refused(profile: Profile, count: int) -> None:
    """By the checker; every construct comes in draws that it takes."""
    seen: Counter[str] = Counter()
    refused = 0
    for seed in range(count):
        drawn = draw(seed, profile)
        if isinstance(drawn.open(), tuple):
            refused += 1
        else:
            seen.update(drawn.constructs)
    assert refused < count / 10
    assert seen.keys() == CONSTRUCTS, CONSTRUCTS ^ seen.keys()


def test_a_construct_is_of_one_kind() -> None:
    """None is counted twice."""
    assert len(CONSTRUCTS) == sum(map(len, KINDS.values()))
