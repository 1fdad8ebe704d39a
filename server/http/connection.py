"""A connection of the HTTP server: Uvicorn's, with bounds on what a client may hold open, and our error envelope."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from .errors import ApiError, crowded

# Bytes of the names and values of a request's headers, and of its target.
MOST_HEADERS = 64 * 2**10

# Seconds that the head of a request may take to come.
HEAD_SECONDS = 30.0

# Seconds that a client may leave what was sent to it unread.
UNREAD_SECONDS = 120.0

_STATUS = {400: b"400 Bad Request", 431: b"431 Request Header Fields Too Large", 503: b"503 Service Unavailable"}


class Connection(HttpToolsProtocol):
    """Closed where a request's head is too long or does not come, and where nobody reads; refused beyond `most`."""

    most = 1024

    def __init__(
        self,
        config: Any,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.access_log = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._head = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Await a request."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self._refuse(crowded())
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Await nothing any more."""
        self._stop_timers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse, and go on waiting where a further request has begun."""
        super().data_received(data)
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self._head_timer is None and not self.transport.is_closing():
            self._await_head()

    def on_url(self, url: bytes) -> None:
        """Count the target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._head = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        if not self.transport.is_closing():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Nothing is read of a request that was refused."""
        if self.cycle is not None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Nothing follows on a request that was refused."""
        if self.cycle is not None:
            super().on_message_complete()

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._unread_timer = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is told so, in the envelope."""
        self._refuse(ApiError(msg))

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > MOST_HEADERS and not self.transport.is_closing():
            self._refuse(ApiError("the request's head is too long", status=431))

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _refuse(self, error: ApiError) -> None:
        """Answer without a request, and close."""
        self._stop_timers()
        body = json.dumps(error.body()).encode()
        head = [
            b"HTTP/1.1 " + _STATUS[error.status],
            b"content-type: application/json",
            b"connection: close",
            b"content-length: %d" % len(body),
        ]
        head += [f"{name}: {value}".encode() for name, value in error.headers.items()]
        if not self.transport.is_closing():
            self.transport.write(b"\r\n".join(head) + b"\r\n\r\n" + body)
            self.transport.close()

    def _stop_timers(self) -> None:
        for timer in (self._head_timer, self._unread_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._unread_timer = None
