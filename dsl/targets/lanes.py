"""Vector registers have 8 sublanes of 128 lanes: last axes are rounded up to whole lanes."""

from __future__ import annotations

SUBLANES, LANES = 8, 128


def padded(width: int) -> int:
    """Columns rounded up to whole lanes."""
    return -(-width // LANES) * LANES
