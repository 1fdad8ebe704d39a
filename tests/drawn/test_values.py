"""Interpreted kernels of what is drawn, against the reference, part by part.

Without `-m` a few are compared, of half of the constructs; with `thorough` ones that hold all between them.
`pytest -m slow -s tests/drawn/test_values.py` compares many more, and prints how many draws hold each construct.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.comparing import Outcome, compare
from helpers.drawing import draw
from helpers.drawing.counts import CONSTRUCTS, counts, table

pytestmark = pytest.mark.timeout(7200)

# Cheap ones, and others that hold every construct with them.
FEW = (925, 282)
OTHERS = (614, 696, 931, 577, 895, 738, 864)
MANY = 230
# Of all draws, at most so many may be refused.
REFUSED = 0.1
CHILDREN = 2


def wrong(found: Sequence[Outcome]) -> list[str]:
    """What is neither the same nor refused."""
    return [f"{each.seed} {each.kind}: {each.said}" for each in found if each.kind not in ("same", "refused")]


@pytest.mark.parametrize("seeds", [FEW, pytest.param(OTHERS, marks=pytest.mark.thorough)], ids=["few", "others"])
def test_a_few(seeds: tuple[int, ...]) -> None:
    """All are compared, and none differs."""
    found = list(compare(map(draw, seeds)))
    assert wrong(found) == []
    assert [each.seed for each in found if each.kind == "same"] == list(seeds)


def test_they_hold_every_construct() -> None:
    """None is left to the slow test."""
    assert frozenset().union(*(draw(seed).constructs for seed in FEW + OTHERS)) == CONSTRUCTS


@pytest.mark.slow
def test_many() -> None:
    """None differs, few are refused, and every construct is in draws that were compared."""
    with ThreadPoolExecutor(CHILDREN) as pool:
        shares = pool.map(lambda first: list(compare(map(draw, range(first, MANY, CHILDREN)))), range(CHILDREN))
        found = sorted((each for share in shares for each in share), key=lambda each: each.seed)
    refused = [each for each in found if each.kind == "refused"]
    words = counts(
        *([draw(each.seed).constructs for each in found if each.kind == kind] for kind in ("same", "refused"))
    )
    print(f"\n{len(found)} draws: {len(found) - len(refused)} compared, {len(refused)} refused; interpreted on CPU")
    print(table(words))
    print("\n".join(f"  {each.seed}: {each.said}" for each in refused))
    assert wrong(found) == []
    assert len(found) - len(refused) >= 200
    assert len(refused) <= REFUSED * len(found)
    assert [word for word, (one, _) in words.items() if not one] == []
