"""What keeps an event loop from its next turn."""

from __future__ import annotations

import asyncio
import time

# Seconds between two beats.
BEAT = 0.002


class Heart:
    """Beats on the running event loop.

    `loop_seconds` is the longest that the loop's thread computed between two beats, `lock_seconds` the longest that the
    process did, both in processor time: the loop waited no longer than the second for the interpreter's lock.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.reset()
        self._latest = time.thread_time(), time.process_time()
        self._beat()

    def reset(self) -> None:
        """Forget what was."""
        self.loop_seconds = self.lock_seconds = 0.0

    def _beat(self) -> None:
        now = time.thread_time(), time.process_time()
        self.loop_seconds = max(self.loop_seconds, now[0] - self._latest[0])
        self.lock_seconds = max(self.lock_seconds, now[1] - self._latest[1])
        self._latest = now
        self._loop.call_later(BEAT, self._beat)
