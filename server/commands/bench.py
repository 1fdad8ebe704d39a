"""A bounded load on an OpenAI-compatible server, and how long it took to answer."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import httpx
from attrs import Factory, define, frozen

_WORDS = (
    "the cat sees moon a dog finds green tree near sea old man paints red house every day river king builds paper "
    "boat with joy small bird carries bread at night"
).split()


@frozen
class Load:
    """What is asked: at most `requests` and for at most `seconds`, with each number of clients."""

    url: str
    model: str | None
    key: str | None = None
    requests: int = 64
    seconds: float = 60.0
    max_tokens: int = 64
    words: tuple[int, int] = (8, 64)
    temperature: float = 0.0
    ignore_eos: bool = False
    seed: int = 0


@define
class Tally:
    """What came back; times in seconds."""

    ok: int = 0
    tokens: int = 0
    prompt_tokens: int = 0
    first: list[float] = Factory(list)
    gaps: list[float] = Factory(list)
    each: list[float] = Factory(list)
    whole: list[float] = Factory(list)
    errors: Counter[str] = Factory(Counter)
    wall: float = 0.0


class Wrong(Exception):
    """An answer that is none; the text says in few words how, so that equal ones can be counted."""


async def measure(load: Load, clients: int) -> Tally:
    """Keep `clients` requests under way until the load's bounds are reached."""
    tally, numbers = Tally(), iter(range(load.requests))
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    headers = {} if load.key is None else {"authorization": f"Bearer {load.key}"}
    began = time.perf_counter()
    async with httpx.AsyncClient(base_url=load.url, headers=headers, limits=limits, timeout=load.seconds) as http:

        async def client() -> None:
            for number in numbers:
                await _one(http, load, number, tally)

        # What is not finished when time is up is no error of the server's.
        work = [asyncio.ensure_future(client()) for _ in range(clients)]
        _, late = await asyncio.wait(work, timeout=load.seconds)
        for task in late:
            task.cancel()
        for result in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
    tally.wall = time.perf_counter() - began
    return tally


async def _one(http: httpx.AsyncClient, load: Load, number: int, tally: Tally) -> None:
    began = time.perf_counter()
    times: list[float] = []
    try:
        async with http.stream("POST", "chat/completions", json=_body(load, number)) as response:
            if response.status_code != 200:
                await response.aread()
                raise Wrong(f"status {response.status_code}")
            usage = await _read(response, times)
    except Wrong as error:
        tally.errors[str(error)] += 1
    except httpx.HTTPError as error:
        tally.errors[type(error).__name__] += 1
    else:
        count = usage.get("completion_tokens", 0)
        tally.ok += 1
        tally.tokens += count
        tally.prompt_tokens += usage.get("prompt_tokens", 0)
        tally.whole.append(time.perf_counter() - began)
        if times:
            tally.first.append(times[0] - began)
            tally.gaps += [later - earlier for earlier, later in pairwise(times)]
        if count > 1 and len(times) > 1:
            tally.each.append((times[-1] - times[0]) / (count - 1))


def _body(load: Load, number: int) -> dict[str, Any]:
    """Every request is another, and the same in every run."""
    chance = random.Random(f"{load.seed}/{number}")
    text = f"[{number}] " + " ".join(chance.choice(_WORDS) for _ in range(chance.randint(*load.words)))
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": load.max_tokens,
        "temperature": load.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if load.temperature > 0:
        body["seed"] = number
    if load.ignore_eos:
        body["ignore_eos"] = True
    return body if load.model is None else {"model": load.model, **body}


async def _read(response: httpx.Response, times: list[float]) -> dict[str, Any]:
    """Read a stream to its end, noting when text came; its usage. Raises `Wrong` where it is no whole stream."""
    usage: dict[str, Any] | None = None
    finished = 0
    async for line in response.aiter_lines():
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            if finished != 1:
                raise Wrong(f"{finished} finish reasons")
            if usage is None:
                raise Wrong("no usage")
            return usage
        try:
            event = json.loads(data)
            choices = event.get("choices") or []
        except (ValueError, AttributeError):
            raise Wrong("an event that is no object") from None
        if "error" in event:
            raise Wrong("an error in the stream")
        usage = event.get("usage") or usage
        for choice in choices:
            finished += choice.get("finish_reason") is not None
            delta = choice.get("delta") or {}
            if any(delta.get(name) for name in ("content", "reasoning", "reasoning_content", "tool_calls")):
                times.append(time.perf_counter())
    raise Wrong("a stream without an end")


def summary(clients: int, tally: Tally) -> dict[str, Any]:
    """The figures of a run, times in milliseconds."""
    return {
        "clients": clients,
        "ok": tally.ok,
        "errors": dict(tally.errors),
        "seconds": round(tally.wall, 3),
        "requests_per_second": _rate(tally.ok, tally.wall),
        "output_tokens_per_second": _rate(tally.tokens, tally.wall),
        "prompt_tokens": tally.prompt_tokens,
        "output_tokens": tally.tokens,
        "first_token_ms": _spread(tally.first),
        "between_tokens_ms": _spread(tally.gaps),
        "per_output_token_ms": _spread(tally.each),
        "whole_ms": _spread(tally.whole),
    }


def _rate(count: int, seconds: float) -> float:
    return round(count / seconds, 2) if seconds else 0.0


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    ordered = sorted(values)
    points = dict(_points(ordered))
    return {name: round(1000 * value, 3) for name, value in points.items()}


def _points(ordered: Sequence[float]) -> Iterator[tuple[str, float]]:
    """The mean, percentiles by linear interpolation, and the largest."""
    yield "mean", sum(ordered) / len(ordered)
    for percent in (50, 90, 99):
        at = (len(ordered) - 1) * percent / 100
        low = int(at)
        high = min(low + 1, len(ordered) - 1)
        yield f"p{percent}", ordered[low] + (ordered[high] - ordered[low]) * (at - low)
    yield "max", ordered[-1]
