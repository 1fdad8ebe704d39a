"""The comparison of draws sees faults that kernels had: each made again, on draws that hold what it is about."""

from __future__ import annotations

import pytest
from helpers.comparing import compare
from helpers.drawing import draw

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

# A fault, a draw that it changes, and the construct that it is about.
SEEN = (
    ("share_alone", 174, "rms_norm within a feed-forward part"),
    ("first_layer", 106, "option by layer"),
    ("first_layer", 127, "option by layer"),
    ("ranks_of_all", 226, "a subset of the axes"),
    ("partial_experts", 186, "norm within experts"),
    ("any_entry", 142, "an id beyond the table"),
)


@pytest.mark.parametrize(("fault", "seed", "construct"), SEEN)
def test_a_fault_is_seen(fault: str, seed: int, construct: str) -> None:
    """As parts that differ, or as a kernel that fails; without it `test_values` compares the same draw."""
    drawn = draw(seed)
    assert construct in drawn.constructs
    (found,) = compare([drawn], fault)
    assert found.kind in ("differs", "crashes"), found
