"""Why a sequence is not taken, or ends before its answer."""

from __future__ import annotations


class EngineFailure(Exception):
    """The decoder failed under a sequence, or the engine stopped before the sequence ended."""


class QueueFull(Exception):
    """As many sequences wait as may."""


class NotAccepting(Exception):
    """The engine is stopping."""


class DeadlinePassed(Exception):
    """The sequence had not ended when its time was over."""
