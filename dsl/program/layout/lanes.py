"""Vector registers have 128 lanes: last axes are rounded up to whole ones."""

from __future__ import annotations

from ...targets.lanes import LANES, padded


def whole_lanes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with its last axis rounded up to whole lanes."""
    return (*shape[:-1], padded(shape[-1]))


def turned(channels: int, turning: int) -> int:
    """How many channels a rotary embedding computes for `turning` of them: whole lanes where there are any."""
    return channels if channels % LANES else -(-turning // LANES) * LANES
