"""Vector registers have 128 lanes: last axes are rounded up to whole ones."""

from __future__ import annotations

LANES = 128


def padded(width: int) -> int:
    """Columns rounded up to whole lanes."""
    return -(-width // LANES) * LANES
