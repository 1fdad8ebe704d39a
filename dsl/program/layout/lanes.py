"""Vector registers have 128 lanes: last axes are rounded up to whole ones."""

from __future__ import annotations

from ...targets.lanes import LANES, padded


def whole_lanes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with its last axis rounded up to whole lanes."""
    return (*shape[:-1], padded(shape[-1]))


def table_words(width: int, dtype: str) -> int:
    """How many 32-bit words a row of a table takes: two numbers of bf16 lie in one."""
    return padded(-(-width // 2) if dtype == "bf16" else width)


def turned(channels: int, turning: int) -> int:
    """How many channels a rotary embedding computes for `turning` of them: whole lanes where there are any."""
    return channels if channels % LANES else padded(turning)
