"""The comparison of draws sees faults that kernels had: each made again, on draws that hold what it is about."""

from __future__ import annotations

import pytest
from helpers import toys
from helpers.comparing import compare
from helpers.drawing import Drawn, draw

pytestmark = pytest.mark.timeout(1800)

# A fault, a draw that it changes, and the construct that it is about.
SEEN = (
    ("share_alone", 174, "rms_norm within a feed-forward part"),
    ("first_layer", 106, "option by layer"),
    ("first_layer", 127, "option by layer"),
    ("ranks_of_all", 226, "a subset of the axes"),
    ("partial_experts", 186, "norm within experts"),
    ("any_entry", 142, "an id beyond the table"),
)
# Each of three experts has a positive weight in one row, and a negative one in the other: -0.36, -0.26 and 1.61, and
# 0.85, 1.38 and -1.23.
SIGNS = [
    Drawn(0, toys.SIGNED_EXPERTS.format(codec=codec), 2, False, "bf16", 1, (22, 31), (0, 200))
    for codec in ("mxfp4", "bf16")
]


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "seed", "construct"), SEEN)
def test_a_fault_is_seen(fault: str, seed: int, construct: str) -> None:
    """As parts that differ, or as a kernel that fails; without it `test_values` compares the same draw."""
    drawn = draw(seed)
    assert construct in drawn.constructs
    (found,) = compare([drawn], fault)
    assert found.kind in ("differs", "crashes"), found


@pytest.mark.thorough
def test_a_row_that_chose_by_a_negative_weight() -> None:
    """It is counted, and has its share of what the expert gives."""
    assert [(each.kind, each.said) for each in compare(SIGNS)] == [("same", "")] * len(SIGNS)
    for found in compare(SIGNS, "positive_weights"):
        assert found.kind == "differs", found
        assert found.said.startswith("p: h, y (worst y in layer 0"), found
