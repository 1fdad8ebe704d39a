"""Serving an application until a signal says stop."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import uvicorn
from attrs import frozen
from starlette.types import ASGIApp

from .connection import Connection

log = logging.getLogger(__name__)

# Seconds that clients get to read the ends of their answers.
GRACE = 5


@frozen
class Tls:
    """A certificate (with its chain) and its key, in PEM files."""

    certificate: Path
    key: Path


class HttpServer(uvicorn.Server):
    """Uvicorn that goes on answering after the first signal until `finished`, and that a second signal ends at once.

    `on_signal` is told of the first; afterwards the program goes on as any other.
    """

    def __init__(self, config: uvicorn.Config, on_signal: Callable[[], None], finished: Callable[[], bool]) -> None:
        super().__init__(config)
        self._on_signal = on_signal
        self._finished = finished
        self.signalled = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop, or end the process."""
        if self.signalled:
            print("ended by a second signal", file=sys.stderr, flush=True)
            os._exit(128 + sig)
        self.signalled = True
        self._on_signal()

    async def on_tick(self, counter: int) -> bool:
        """See whether it is time to end; ten times a second."""
        if self.signalled and self._finished():
            self.should_exit = True
        return await super().on_tick(counter)

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


def configure(app: ASGIApp, *, tls: Tls | None = None, max_connections: int = 1024) -> uvicorn.Config:
    """Uvicorn's settings. Raises `OSError` (`ssl.SSLError` among them) where a certificate cannot be used."""
    kind = type("Connection", (Connection,), {"most": max_connections})
    config = uvicorn.Config(
        app,
        http=kind,
        ws="none",
        log_config=None,
        lifespan="off",
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=GRACE,
        ssl_certfile=None if tls is None else tls.certificate,
        ssl_keyfile=None if tls is None else tls.key,
    )
    config.load()
    return config
