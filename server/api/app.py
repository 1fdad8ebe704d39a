"""The HTTP application: routes, bodies and error envelopes. Plain ASGI throughout."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from attrs import field, frozen
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ...dsl.version import version
from ..engine.engine import Health
from ..http.access_log import all_of
from ..http.edge import Edge, Keys, error_response, record_of, request_id
from ..http.errors import ApiError, failed, loading, not_found
from ..http.jsonwrite import JsonResponse, RawJson, dump_large
from .metrics import Metrics
from .page import page
from .respond import ClientGone, EventStream, whole_response
from .service import Service
from .shapes import Shape

log = logging.getLogger(__name__)

# Seconds that a body may take to come.
BODY_SECONDS = 60.0


@frozen
class HttpOptions:
    """How the application meets the world: the largest body in bytes, the keys that open it (none: it is open), the
    origins whose pages may use it, the requests that may be under way, and whether the log tells what was asked.
    """

    max_body: int = 32 * 2**20
    keys: tuple[str, ...] = field(default=(), repr=False)
    origins: tuple[str, ...] = ()
    max_requests: int = 2048
    log_prompts: bool = False


class Holder:
    """The service, once the model is loaded."""

    def __init__(self, service: Service | None = None) -> None:
        self.service = service

    def get(self) -> Service:
        """The service. Raises `ApiError` 503 as long as there is none."""
        if self.service is None:
            raise loading()
        return self.service


async def _read_body(request: Request, limit: int) -> bytes:
    """A request's body, which says that it is JSON. Raises `ApiError` 413 or 415."""
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        message = f"the content encoding {coding[:60]} is not supported; send the body uncompressed"
        raise ApiError(message, status=415, code="unsupported_media_type", headers={"accept-encoding": "identity"})
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
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                data += part
                if len(data) > limit:
                    raise too_large
    except TimeoutError:
        raise ApiError("the body did not arrive in time", status=408, headers={"connection": "close"}) from None
    return bytes(data)


@frozen
class _Endpoints:
    holder: Holder
    metrics: Metrics
    options: HttpOptions

    @property
    def service(self) -> Service:
        return self.holder.get()

    async def read[T](self, request: Request, read: Callable[[dict[str, Any]], T]) -> T:
        """What `read` makes of the body. Raises `ApiError`."""
        data = await _read_body(request, self.options.max_body)
        builders = self.service.builders
        body = await builders.parse(data)
        if self.options.log_prompts:
            record_of(request.scope)["body"] = body
        return await builders.read(read, body, len(data))

    async def generate(self, request: Request, read: Callable[[dict[str, Any]], Shape]) -> Response:
        shape = await self.read(request, read)
        record = record_of(request.scope)
        record |= {"response_id": shape.id, "stream": shape.params.stream, **shape.notes}
        generation = await self.service.start(shape, request_id.get())
        if shape.params.stream:
            return EventStream(shape, generation, record)
        return await whole_response(shape, generation, request.receive, record)

    async def chat(self, request: Request) -> Response:
        return await self.generate(request, self.service.chat)

    async def responses(self, request: Request) -> Response:
        return await self.generate(request, self.service.responses)

    async def completions(self, request: Request) -> Response:
        return await self.generate(request, self.service.completion)

    async def tokenize(self, request: Request) -> Response:
        return RawJson(await self.read(request, lambda body: dump_large(self.service.tokenize(body))))

    async def detokenize(self, request: Request) -> Response:
        return RawJson(await self.read(request, lambda body: dump_large(self.service.detokenize(body))))

    async def models(self, request: Request) -> Response:
        return JsonResponse({"object": "list", "data": [self.service.card()]})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name != self.service.rules.model:
            raise not_found(f"the model `{name[:200]}` does not exist", "model", "model_not_found")
        return JsonResponse(self.service.card())

    async def health(self, request: Request) -> Response:
        service = self.holder.service
        status = "loading" if service is None else service.engine.health().value
        return JsonResponse({"status": status}, status_code=200 if status == Health.READY.value else 503)

    async def live(self, request: Request) -> Response:
        return JsonResponse({"status": "live"})

    async def show_metrics(self, request: Request) -> Response:
        return Response(self.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def page(self, request: Request) -> Response:
        return page()

    async def version(self, request: Request) -> Response:
        return JsonResponse({"version": version()})


async def _api_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    return error_response(error)


async def _http_error(request: Request, error: Exception) -> Response:
    """Unknown routes and methods, in the API's envelope."""
    if not isinstance(error, HTTPException):
        raise error
    where = f"{request.method} {request.url.path[:200]}"
    message = {404: f"there is no {where}", 405: f"{where}: the method is not allowed"}.get(error.status_code)
    api_error = ApiError(message or error.detail, status=error.status_code, headers=dict(error.headers or {}))
    return JsonResponse(api_error.body(), status_code=api_error.status, headers=api_error.headers)


async def _client_gone(request: Request, error: Exception) -> Response:
    """Nobody reads this; the status is nginx's for it."""
    return Response(status_code=499)


async def _bug(request: Request, error: Exception) -> Response:
    api_error = failed("the server failed on this request")
    return JsonResponse(api_error.body(), status_code=api_error.status)


def build_app(
    holder: Holder,
    metrics: Metrics,
    options: HttpOptions | None = None,
    done: Callable[[dict[str, Any]], None] = lambda record: None,
) -> ASGIApp:
    """The application; `done` is told of every request when it is over."""
    options = options or HttpOptions()
    ends = _Endpoints(holder, metrics, options)
    routes = [
        Route("/v1/chat/completions", ends.chat, methods=["POST"]),
        Route("/v1/responses", ends.responses, methods=["POST"]),
        Route("/v1/completions", ends.completions, methods=["POST"]),
        Route("/v1/models", ends.models),
        Route("/v1/models/{name:path}", ends.model),
        Route("/tokenize", ends.tokenize, methods=["POST"]),
        Route("/detokenize", ends.detokenize, methods=["POST"]),
        Route("/health", ends.health),
        Route("/health/live", ends.live),
        Route("/ping", ends.live),
        Route("/metrics", ends.show_metrics),
        Route("/version", ends.version),
        Route("/", ends.page),
    ]
    routed = Starlette(
        routes=routes,
        exception_handlers={
            ApiError: _api_error,
            HTTPException: _http_error,
            ClientGone: _client_gone,
            ClientDisconnect: _client_gone,
            Exception: _bug,
        },
    )
    routed.router.redirect_slashes = False
    app: ASGIApp = routed
    if options.keys:
        app = Keys(app, options.keys)
    if options.origins:
        expose = ["x-request-id"]
        app = CORSMiddleware(app, options.origins, allow_methods=["*"], allow_headers=["*"], expose_headers=expose)
    return Edge(app, options.max_requests, all_of(metrics.responded, done))
