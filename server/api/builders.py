"""Where requests are read that take long, so that no other request waits for those."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...models.text.memory import give_back
from ..http.errors import busy
from ..http.jsonbody import parse_body

THREADS = 2

# As many may wait for them.
MAX_WAITING = 64

RETRY_SECONDS = 5

# Bytes of a body that is read on the event loop, and of one that other requests do not wait for.
QUICK = 2**14
LARGE = 2**18

# What a grammar can come from.
_FIELDS = ("tools", "response_format", "text")


class _Line:
    """A few threads, and those that wait for them. To be used on one event loop."""

    def __init__(self, name: str, work: str) -> None:
        self._pool = ThreadPoolExecutor(THREADS, name)
        self._work = work
        self._under_way = 0

    async def run[T](self, job: Callable[[], T]) -> T:
        """What `job` gives. Raises `ApiError` 503 where too many wait."""
        if self._under_way >= MAX_WAITING + THREADS:
            raise busy(RETRY_SECONDS, self._work)
        self._under_way += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, job)
        finally:
            self._under_way -= 1


class Builders:
    """Threads for requests that have a grammar to build, and others for large ones; to be used on one event loop."""

    def __init__(self) -> None:
        self._grammars = _Line("mks-grammar", "grammars are being built")
        self._large = _Line("mks-large", "long prompts are being read")

    async def parse(self, data: bytes) -> dict[str, Any]:
        """The JSON object in a body. Raises `ApiError`."""
        if len(data) < QUICK:
            return parse_body(data)
        if len(data) < LARGE:
            return await asyncio.to_thread(parse_body, data)
        return await self._large.run(lambda: parse_body(data))

    async def read[T](self, read: Callable[[dict[str, Any]], T], body: dict[str, Any], size: int) -> T:
        """`read(body)` outside of the event loop; `size` is that of the body in bytes. Raises what it raises."""
        if size >= LARGE:
            return await self._large.run(lambda: _give_back_after(read, body))
        if any(body.get(name) for name in _FIELDS):
            return await self._grammars.run(lambda: read(body))
        return await asyncio.to_thread(read, body)


def _give_back_after[T](read: Callable[[dict[str, Any]], T], body: dict[str, Any]) -> T:
    try:
        return read(body)
    finally:
        give_back()
