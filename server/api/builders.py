"""Where requests are read that may have a grammar to build, so that no other request waits for those."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .errors import busy

THREADS = 2

# As many may wait for them.
MAX_WAITING = 64

RETRY_SECONDS = 5

# What a grammar can come from.
_FIELDS = ("tools", "response_format", "text")


class Builders:
    """Threads of their own for these requests; to be used on one event loop."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, "mks-grammar")
        self._under_way = 0

    async def read[T](self, read: Callable[[dict[str, Any]], T], body: dict[str, Any]) -> T:
        """`read(body)` outside of the event loop. Raises `ApiError` 503 where too many wait."""
        if not any(body.get(name) for name in _FIELDS):
            return await asyncio.to_thread(read, body)
        if self._under_way >= MAX_WAITING + THREADS:
            raise busy(RETRY_SECONDS)
        self._under_way += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, read, body)
        finally:
            self._under_way -= 1
