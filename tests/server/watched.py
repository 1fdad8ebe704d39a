"""A server that watches its event loop: `python watched.py CONTEXT` prints its port.

A line on stdin, `reset` or `report`, is answered by a line of JSON: the longest that the loop's thread computed between
two of its beats (`loop`) and the longest that the process did (`lock`: nobody kept the interpreter's lock for longer),
in seconds of processor time, and the memory of the process in MiB since the last reset.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TextIO

import free_decoder
import uvicorn
from heart import Heart

from mks.models.text.files import read_text_files
from mks.server.api.app import Holder, HttpOptions, build_app
from mks.server.api.build import build_service
from mks.server.api.metrics import Metrics
from mks.server.http.access_log import Journal
from mks.server.http.serve import configure, listen


def memory() -> float:
    """Of this process, in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class Null:
    """A log that is written and read by nobody."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


def main(context: int) -> None:
    """Serve until stdin ends."""
    metrics = Metrics("free")
    files = read_text_files(Path(__file__).parents[1] / "data" / "chat_tiny")
    decoder = free_decoder.FreeDecoder(861, 0)
    decoder.context, decoder.chunk = context, 2**16  # type: ignore[misc]
    service = build_service(decoder, files, "free", observer=metrics)
    metrics.watch(service.engine)
    service.engine.start()
    log: TextIO = Null()  # type: ignore[assignment]
    app = build_app(Holder(service), metrics, HttpOptions(log_prompts=True), Journal(log).add)
    bound, server = listen("127.0.0.1", 0), uvicorn.Server(configure(app))
    hearts: list[Heart] = []

    async def serve() -> None:
        hearts.append(Heart())
        await server.serve(sockets=[bound])

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    print(bound.getsockname()[1], flush=True)
    before = memory()
    for line in sys.stdin:
        heart = hearts[0]
        if line.strip() == "reset":
            before = memory()
            heart.reset()
        print(
            json.dumps({"loop": heart.loop_seconds, "lock": heart.lock_seconds, "memory": memory() - before}),
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]))
