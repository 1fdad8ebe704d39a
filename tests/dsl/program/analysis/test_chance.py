"""How many experts a batch reads."""

from itertools import combinations
from random import Random

import pytest

from mks.dsl.program.analysis.routing_stats import distinct, largest_group


@pytest.mark.parametrize(
    ("experts", "groups", "chosen"), [(8, 2, 3), (8, 4, 3), (9, 3, 4), (6, 6, 2), (8, 1, 5), (8, 4, 8)]
)
def test_largest_group_is_the_mean_over_all_choices(experts: int, groups: int, chosen: int) -> None:
    """Equal to the count over every subset."""
    size = experts // groups
    sizes = [max(sum(e // size == g for e in c) for g in range(groups)) for c in combinations(range(experts), chosen)]
    assert largest_group(experts, groups, chosen) == pytest.approx(sum(sizes) / len(sizes), abs=1e-3)


@pytest.mark.parametrize(("groups", "mean"), [(1, 16.0), (2, 9.6), (4, 6.1), (8, 4.2)])
def test_kimi_k3(groups: int, mean: float) -> None:
    """16 of 896 experts, as published for these groups."""
    assert largest_group(896, groups, 16) == pytest.approx(mean, abs=0.05)


def test_distinct_experts_of_a_batch() -> None:
    """Close to a simulation of eight independent rows."""
    random = Random(0)
    seen = [len({e for _ in range(8) for e in random.sample(range(896), 16)}) for _ in range(300)]
    assert distinct(896, 16, 8) == pytest.approx(sum(seen) / len(seen), rel=0.01)
