"""A definition's names are its own: none meets a name that kernels use."""

from __future__ import annotations

import pytest
from helpers import toys
from helpers.comparing import compare
from helpers.drawing import Drawn


@pytest.mark.timeout(600)
@pytest.mark.thorough
def test_any_name_may_be_taken() -> None:
    """Carried values, a part's own, parts and streams with the names of what a kernel is given."""
    (found,) = compare([Drawn(0, toys.KERNEL_NAMES, 2, False, "f32", 1, (3, 4), (0, 200))])
    assert (found.kind, found.said) == ("same", "")
