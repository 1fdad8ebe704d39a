"""What happens to every request before and after its endpoint: ids, keys, limits and the access log. Plain ASGI."""

from __future__ import annotations

import hashlib
import hmac
import string
import time
import uuid
from collections.abc import Callable, Collection, Iterable
from contextvars import ContextVar
from typing import Any

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import ApiError, crowded, unauthorized
from .jsonwrite import JsonResponse

# What needs no key: nothing there tells of prompts or answers, and nothing runs the model.
OPEN = frozenset({"/", "/health", "/health/live", "/ping", "/metrics", "/version"})

# What is asked every few seconds by machines and not worth a line each.
UNLOGGED = frozenset({"/health", "/health/live", "/ping", "/metrics"})

# The request's id, for log lines that are written on the way.
request_id: ContextVar[str] = ContextVar("request_id", default="")

# Where endpoints add to a request's line in the access log.
RECORD = "mks.record"

_ID_CHARACTERS = frozenset(string.ascii_letters + string.digits + "-_.:/+=")


def record_of(scope: Scope) -> dict[str, Any]:
    """What the access log will say of a request, to be added to."""
    record: dict[str, Any] = scope.setdefault(RECORD, {})
    return record


class Edge:
    """Gives every response an `x-request-id`, the client's own if it is a decent one, and tells `done` of it.

    At most `most` requests are under way at a time; more are refused.
    """

    def __init__(self, app: ASGIApp, most: int, done: Callable[[dict[str, Any]], None]) -> None:
        self._app = app
        self._most = most
        self._done = done
        self._count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, mark its response and write its line."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        fine = 0 < len(given) <= 128 and set(given) <= _ID_CHARACTERS
        identity = given if fine else uuid.uuid4().hex
        mark = (b"x-request-id", identity.encode())
        record = record_of(scope)
        record |= {"request_id": identity, "method": scope["method"], "path": scope["path"][:200]}
        record |= {"client": (scope.get("client") or [None])[0], "status": 499}
        started = time.monotonic()

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), mark]
                record["status"] = message["status"]
            await send(message)

        token = request_id.set(identity)
        self._count += 1
        try:
            if self._count > self._most and scope["path"] not in OPEN:
                await error_response(crowded())(scope, receive, marked)
            else:
                await self._app(scope, receive, marked)
        finally:
            self._count -= 1
            request_id.reset(token)
            record["seconds"] = round(time.monotonic() - started, 6)
            self._done(record)


class Keys:
    """Lets nobody without one of `keys` past the open paths."""

    def __init__(self, app: ASGIApp, keys: Iterable[str]) -> None:
        self._app = app
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it before its body is read."""
        if scope["type"] == "http" and not self._may(scope):
            await error_response(unauthorized())(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _may(self, scope: Scope) -> bool:
        if scope["path"] in OPEN and scope["method"] in ("GET", "HEAD"):
            return True
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, key = (given[0] if len(given) == 1 else b"").partition(b" ")
        digest = hashlib.sha256(key.strip()).digest()
        # All of them are compared, whichever fits.
        same = [hmac.compare_digest(digest, known) for known in self._digests]
        return scheme.lower() == b"bearer" and any(same)


def error_response(error: ApiError) -> Response:
    """An error as a response."""
    return JsonResponse(error.body(), status_code=error.status, headers=error.headers)


def read_keys(given: Collection[str], text: str | None) -> tuple[str, ...]:
    """Keys of options and of a file's text, one a line, `#` before remarks. Raises `ValueError` where one is empty."""
    lines = [line.strip() for line in (text or "").splitlines()]
    keys = [*(key.strip() for key in given), *(line for line in lines if line and not line.startswith("#"))]
    if not all(key and key.isprintable() and " " not in key for key in keys):
        raise ValueError("an API key is empty or holds a space")
    if text is not None and not keys:
        raise ValueError("there is no key in it")
    return tuple(dict.fromkeys(keys))
