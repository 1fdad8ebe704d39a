"""From a generation to an HTTP response, whole or as server-sent events, ended early where the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..engine.failures import DeadlinePassed, EngineFailure, NotAccepting
from ..engine.grammar import GrammarFailure
from ..http.errors import ApiError, bad_request, failed, stopping, too_slow
from ..http.jsonwrite import JsonResponse, RawJson, dump_large
from .generation import Generation, Part, join
from .shapes import Shape, Usage

# Seconds without anything to send after which an open stream gets a comment.
KEEP_ALIVE = 15.0

# Tokens of the prompts of a request from which on what repeats them is not written on the event loop.
MANY = 4096


class ClientGone(Exception):
    """The client closed the connection before the answer was complete."""


async def off_loop[T](tokens: int, work: Callable[[], T]) -> T:
    """What `work` gives; where it deals with many tokens, other requests do not wait for it."""
    return work() if tokens < MANY else await asyncio.to_thread(work)


async def unless_gone[T](receive: Receive, work: Awaitable[T]) -> T:
    """The result of `work`, which is cancelled when the client leaves. Raises `ClientGone` then."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def as_api_error(error: Exception) -> ApiError:
    """What a client is told of a failure."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, NotAccepting):
        return stopping()
    if isinstance(error, DeadlinePassed):
        return too_slow()
    if isinstance(error, GrammarFailure):
        return bad_request(str(error))
    if isinstance(error, EngineFailure):
        return failed(str(error))
    return failed("the server failed on this request")


async def whole_response(shape: Shape, generation: Generation, receive: Receive, record: dict[str, Any]) -> Response:
    """The complete answer, its usage noted in `record`. Raises `ClientGone`, or `ApiError` where a sequence failed."""
    try:
        parts = await unless_gone(receive, _collect(shape, generation))
    except (ClientGone, asyncio.CancelledError):
        raise
    except Exception as error:
        raise as_api_error(error) from error
    finally:
        generation.cancel()
    usage = _usage(shape, parts)
    note(record, usage)
    if shape.prompt_tokens * len(shape.plans) < MANY:
        return JsonResponse(shape.whole(parts, usage))
    return RawJson(await asyncio.to_thread(lambda: dump_large(shape.whole(parts, usage))))


def note(record: dict[str, Any], usage: Usage) -> None:
    """Say in the access log how much was asked and answered."""
    counts = {"prompt_tokens": usage.prompt, "cached_tokens": usage.cached, "completion_tokens": usage.completion}
    record |= counts


async def _collect(shape: Shape, generation: Generation) -> list[Part]:
    gathered: list[list[Part]] = [[] for _ in shape.plans]
    async for parts in generation.parts():
        for part in parts:
            gathered[part.index].append(part)
    return [join(parts) for parts in gathered]


def _usage(shape: Shape, parts: list[Part]) -> Usage:
    return Usage(shape.prompt_tokens, sum(len(part.delta.tokens) for part in parts), cached_tokens(shape, parts))


def cached_tokens(shape: Shape, parts: Iterable[Part]) -> int:
    """How many of the prompts' tokens were known, each prompt counted once: by its first choice."""
    return sum(part.cached for part in parts if part.index % shape.params.n == 0)


class EventStream(Response):
    """The answer as it is made.

    Nothing is sent before the first part is there, so that a failure until then is a plain HTTP error.
    """

    def __init__(self, shape: Shape, generation: Generation, record: dict[str, Any]) -> None:
        super().__init__(media_type="text/event-stream")
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-cache"
        self.headers["x-accel-buffering"] = "no"
        self._shape = shape
        self._generation = generation
        self._record = record
        self._completion = self._cached = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all events; stop the generation however this ends."""
        try:
            await unless_gone(receive, self._send_all(send))
        except (ClientGone, OSError):
            self._record["status"] = 499
        finally:
            self._generation.cancel()
            note(self._record, self._usage())

    async def _send_all(self, send: Send) -> None:
        started, framing = False, self._shape.framing
        try:
            async for event in self._events():
                if not started:
                    await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                    started = True
                await send({"type": "http.response.body", "body": event, "more_body": True})
        except (OSError, asyncio.CancelledError):
            raise
        except Exception as error:
            api_error = as_api_error(error)
            if not started:
                raise api_error from error
            self._record["error"] = api_error.message
            failure = framing.failure(api_error) + framing.end
            await send({"type": "http.response.body", "body": failure, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _usage(self) -> Usage:
        return Usage(self._shape.prompt_tokens, self._completion, self._cached)

    async def _events(self) -> AsyncIterator[bytes]:
        """What to send, all of a turn in one piece."""
        shape, params = self._shape, self._shape.params
        framing = shape.framing
        begun: set[int] = set()
        opened = False
        async for parts in self._generation.parts(KEEP_ALIVE):
            out = []
            if not opened:
                opened = True
                out += await self._repeating(lambda: self._events_of(shape.opening()))
            if not parts:
                out.append(b": keep-alive\n\n")
            for part in parts:
                if part.index in begun:
                    out += self._written(part, first=False)
                else:
                    begun.add(part.index)
                    out += await self._repeating(partial(self._written, part, first=True))
            if out:
                yield b"".join(out)
        if params.include_usage:
            closing = await self._repeating(lambda: [framing.event(shape.closing(self._usage()))])
            yield b"".join(closing) + framing.end
        else:
            yield framing.end

    async def _repeating(self, write: Callable[[], list[bytes]]) -> list[bytes]:
        """Events that may repeat the prompt."""
        return await off_loop(self._shape.prompt_tokens * len(self._shape.plans), write)

    def _written(self, part: Part, first: bool) -> list[bytes]:
        """The events of a part."""
        self._completion += len(part.delta.tokens)
        self._cached += cached_tokens(self._shape, [part]) if first else 0
        return self._events_of(self._shape.chunks(part, first))

    def _events_of(self, chunks: Iterable[dict[str, Any]]) -> list[bytes]:
        """Chunks as events, with the usage so far where it is wanted all the time."""
        more = {"usage": self._usage().body()} if self._shape.params.continuous_usage else {}
        return [self._shape.framing.event({**chunk, **more}) for chunk in chunks]
