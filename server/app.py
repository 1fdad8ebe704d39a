"""The HTTP application: routes, bodies and error envelopes. Plain ASGI throughout."""

from __future__ import annotations

import asyncio
import logging
import string
import uuid
from collections.abc import Callable
from typing import Any

from attrs import frozen
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .engine import Health
from .errors import ApiError, failed, not_found
from .jsonbody import parse_body
from .respond import ClientGone, EventStream, JsonResponse, whole_response
from .service import Service
from .shapes import Shape
from .version import version

log = logging.getLogger(__name__)

MAX_BODY = 32 * 2**20

_ID_CHARACTERS = frozenset(string.ascii_letters + string.digits + "-_.:/+=")


class RequestId:
    """Gives every response an `x-request-id`: the client's own, if it is a decent one, or a new one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and mark its response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        fine = 0 < len(given) <= 128 and set(given) <= _ID_CHARACTERS
        mark = (b"x-request-id", (given if fine else uuid.uuid4().hex).encode())

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), mark]
            await send(message)

        await self._app(scope, receive, marked)


async def _read_object(request: Request, limit: int) -> dict[str, Any]:
    """The JSON object in a request's body. Raises `ApiError` 400, 413 or 415."""
    kind = request.headers.get("content-type", "application/json").split(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        message = f"the body must be sent as application/json, not {kind[:60]}"
        raise ApiError(message, status=415, code="unsupported_media_type")
    declared = request.headers.get("content-length", "0")
    too_large = ApiError(
        f"the body is larger than {limit} bytes", status=413, code="request_too_large", headers={"connection": "close"}
    )
    if declared.isdigit() and int(declared) > limit:
        raise too_large
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > limit:
            raise too_large
    if len(data) < 2**16:
        return parse_body(bytes(data))
    return await asyncio.to_thread(parse_body, bytes(data))


@frozen
class _Endpoints:
    service: Service
    max_body: int

    async def generate(self, request: Request, read: Callable[[dict[str, Any]], Shape]) -> Response:
        body = await _read_object(request, self.max_body)
        shape = await asyncio.to_thread(read, body)
        generation = self.service.start(shape)
        if shape.params.stream:
            return EventStream(shape, generation)
        return await whole_response(shape, generation, request.receive)

    async def chat(self, request: Request) -> Response:
        return await self.generate(request, self.service.chat)

    async def completions(self, request: Request) -> Response:
        return await self.generate(request, self.service.completion)

    async def tokenize(self, request: Request) -> Response:
        body = await _read_object(request, self.max_body)
        return JsonResponse(await asyncio.to_thread(self.service.tokenize, body))

    async def detokenize(self, request: Request) -> Response:
        body = await _read_object(request, self.max_body)
        return JsonResponse(await asyncio.to_thread(self.service.detokenize, body))

    async def models(self, request: Request) -> Response:
        return JsonResponse({"object": "list", "data": [self.service.card()]})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name != self.service.rules.model:
            raise not_found(f"the model `{name[:200]}` does not exist", "model", "model_not_found")
        return JsonResponse(self.service.card())

    async def health(self, request: Request) -> Response:
        health = self.service.engine.health()
        return JsonResponse({"status": health.value}, status_code=200 if health is Health.READY else 503)

    async def version(self, request: Request) -> Response:
        return JsonResponse({"version": version()})


async def _api_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    return JsonResponse(error.body(), status_code=error.status, headers=error.headers)


async def _http_error(request: Request, error: Exception) -> Response:
    """Unknown routes and methods, in the API's envelope."""
    if not isinstance(error, HTTPException):
        raise error
    where = f"{request.method} {request.url.path[:200]}"
    message = {404: f"there is no {where}", 405: f"{where}: the method is not allowed"}.get(error.status_code)
    told = ApiError(message or error.detail, status=error.status_code, headers=dict(error.headers or {}))
    return JsonResponse(told.body(), status_code=told.status, headers=told.headers)


async def _client_gone(request: Request, error: Exception) -> Response:
    """Nobody reads this; the status is nginx's for it."""
    log.info("the client of %s %s left", request.method, request.url.path)
    return Response(status_code=499)


async def _bug(request: Request, error: Exception) -> Response:
    told = failed("the server failed on this request")
    return JsonResponse(told.body(), status_code=told.status)


def build_app(service: Service, *, max_body: int = MAX_BODY) -> ASGIApp:
    """The application for a service whose engine is started."""
    ends = _Endpoints(service, max_body)
    routes = [
        Route("/v1/chat/completions", ends.chat, methods=["POST"]),
        Route("/v1/completions", ends.completions, methods=["POST"]),
        Route("/v1/models", ends.models),
        Route("/v1/models/{name:path}", ends.model),
        Route("/tokenize", ends.tokenize, methods=["POST"]),
        Route("/detokenize", ends.detokenize, methods=["POST"]),
        Route("/health", ends.health),
        Route("/version", ends.version),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={
            ApiError: _api_error,
            HTTPException: _http_error,
            ClientGone: _client_gone,
            ClientDisconnect: _client_gone,
            Exception: _bug,
        },
    )
    app.router.redirect_slashes = False
    return RequestId(app)
