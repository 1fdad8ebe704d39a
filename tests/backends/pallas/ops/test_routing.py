"""What is done for the rows that chose an expert."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from mks.backends.pallas.emit import moe as routing


@pytest.mark.parametrize(
    ("weights", "row"),
    [
        ([0.5, 0.0], 0),
        ([0.0, 0.5], 1),
        ([0.5, 0.5], -1),
        ([-0.5, 0.0], 0),
        ([-0.5, 0.5], -1),  # a route's weights are as its scores, which may have either sign
        ([0.5, -1e-9], -1),
        ([0.0, 0.0], -1),
        ([float("nan"), 0.5], -1),
        ([0.0, 0.5, -0.5, 0.0], -1),
        ([0.0, 0.0, -0.5, 0.0], 2),
    ],
)
def test_the_only_row_that_chose_an_expert(weights: list[float], row: int) -> None:
    """-1 where several did, or none: then all rows are multiplied."""
    core: Any = SimpleNamespace(rows=len(weights), program=SimpleNamespace(instance=SimpleNamespace(working="bf16")))

    found = routing._alone(jnp.asarray(weights, jnp.float32)[:, None], core)

    assert found is not None
    assert int(found) == row


def test_a_row_that_did_not_choose_an_expert() -> None:
    """It gets nothing of its value, though that be infinite or no number; the others do."""
    inf, nan = float("inf"), float("nan")
    value = jnp.asarray([[inf, nan, -inf, 2.0], [inf, nan, 1.0, 2.0], [1.0, 2.0, 3.0, 4.0]])

    found = routing.weighted(jnp.asarray([[0.0], [-0.5], [0.5]]), value)

    np.testing.assert_array_equal(found, [[0, 0, 0, 0], [-inf, nan, -0.5, -1], [0.5, 1, 1.5, 2]])
