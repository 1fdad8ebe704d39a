"""Serving an application until a signal says stop."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

log = logging.getLogger(__name__)

# What open connections get beyond the time that their answers have.
GRACE = 5


class HttpServer(uvicorn.Server):
    """Uvicorn that calls `on_signal` as soon as a signal comes, and after a signal ends like any other program."""

    def __init__(self, config: uvicorn.Config, on_signal: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_signal = on_signal

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; a second SIGINT stops at once."""
        self._on_signal()
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM for the time being, and do not raise them again afterwards."""
        before = {sig: signal.signal(sig, self.handle_exit) for sig in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes a free one. Raises `OSError`."""
    family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, proto)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def serve_until_signal(app: ASGIApp, bound: socket.socket, on_signal: Callable[[], None], drain_seconds: float) -> None:
    """Answer on `bound` until SIGINT or SIGTERM, then let running answers end within `drain_seconds`."""
    config = uvicorn.Config(
        app,
        log_config=None,
        lifespan="off",
        access_log=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(drain_seconds) + GRACE,
    )
    HttpServer(config, on_signal).run(sockets=[bound])
