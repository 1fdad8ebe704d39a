"""The access log: a line of JSON for each request, written where it holds nobody up."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

from .edge import UNLOGGED
from .jsonwrite import dump_large

# Lines that may wait for a slow reader; more are dropped and counted.
MOST = 10_000


class Journal:
    """Writes lines to `out` on a thread of its own."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue(MOST)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="mks-journal", daemon=True)
        self._thread.start()

    def add(self, record: dict[str, Any]) -> None:
        """Write a request's line, later; never waits."""
        if record["path"] in UNLOGGED:
            return
        try:
            self._lines.put_nowait({"time": round(time.time(), 3), **record})
        except queue.Full:
            self._dropped += 1

    def close(self, seconds: float = 2.0) -> None:
        """Write what is left, within a time."""
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=seconds)
        self._thread.join(seconds)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            if self._dropped:
                line["dropped_lines"], self._dropped = self._dropped, 0
            try:
                self._out.write(_written(line) + "\n")
                if self._lines.empty():
                    self._out.flush()
            except (OSError, ValueError):  # nobody reads, or it is closed
                return


def _written(line: dict[str, Any]) -> str:
    """A record as JSON; other threads run while a large body is written."""
    text = json.dumps({name: value for name, value in line.items() if name != "body"}, ensure_ascii=False, default=str)
    return text if "body" not in line else f'{text[:-1]}, "body": {dump_large(line["body"]).decode()}}}'


def all_of(*takers: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    """Tells several of a request."""

    def tell(record: dict[str, Any]) -> None:
        for taker in takers:
            taker(record)

    return tell
