"""Interpreted kernels of what is drawn, against the reference, part by part.

`pytest -m slow -s tests/drawn/test_values.py` compares many more, and prints how many draws hold each construct.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.comparing import Outcome, compare
from helpers.drawing import draw
from helpers.drawing.counts import counts, table

pytestmark = pytest.mark.timeout(7200)

# Small ones that hold every construct between them.
QUICK = (206, 310, 399, 104, 210, 394, 361, 456, 45, 204, 19, 52)
MANY = 230
# Of all draws, at most so many may be refused.
REFUSED = 0.1
CHILDREN = 2


def wrong(found: Sequence[Outcome]) -> list[str]:
    """What is neither the same nor refused."""
    return [f"{each.seed} {each.kind}: {each.said}" for each in found if each.kind not in ("same", "refused")]


def test_a_dozen() -> None:
    """All are compared, and none differs."""
    found = list(compare(map(draw, QUICK)))
    assert wrong(found) == []
    assert [each.seed for each in found if each.kind == "same"] == list(QUICK)


@pytest.mark.slow
def test_many() -> None:
    """None differs, few are refused, and every construct is in draws that were compared."""
    with ThreadPoolExecutor(CHILDREN) as pool:
        shares = pool.map(lambda first: list(compare(map(draw, range(first, MANY, CHILDREN)))), range(CHILDREN))
        found = sorted((each for share in shares for each in share), key=lambda each: each.seed)
    refused = [each for each in found if each.kind == "refused"]
    words = counts(*([draw(each.seed).constructs for each in found if each.kind == kind]
                     for kind in ("same", "refused")))  # fmt: skip
    print(f"\n{len(found)} draws: {len(found) - len(refused)} compared, {len(refused)} refused; interpreted on CPU")
    print(table(words))
    print("\n".join(f"  {each.seed}: {each.said}" for each in refused))
    assert wrong(found) == []
    assert len(found) - len(refused) >= 200
    assert len(refused) <= REFUSED * len(found)
    assert [word for word, (one, _) in words.items() if not one] == []
