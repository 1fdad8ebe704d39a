"""Tasks for an engine, what they should give, and an engine that ends with its test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from mks.server.engine.engine import Engine
from mks.server.engine.observer import Observer
from mks.server.engine.sampling import Sampler
from mks.server.engine.sampling_params import Sampling
from mks.server.engine.scores import Scored
from mks.server.engine.sequence import Running, Task

from .fake import FakeDecoder


class Gather:
    """A sink that keeps what it gets; finished after `want` tokens."""

    finish = None

    def __init__(self, want: int = 10**6) -> None:
        self.want = want
        self.tokens: list[Scored] = []
        self.prompt: list[Scored] = []
        self.cached: int | None = None
        self.error: Exception | None = None
        self.done = threading.Event()

    def began(self, cached: int) -> None:
        assert self.cached is None
        self.cached = cached

    def scored(self, prompt: Sequence[Scored]) -> None:
        self.prompt += prompt

    def emitted(self, tokens: Sequence[Scored]) -> bool:
        assert self.error is None
        self.tokens += tokens
        return len(self.tokens) >= self.want

    def ended(self) -> None:
        self.done.set()

    def failed(self, error: Exception) -> None:
        assert self.error is None
        self.error = error
        self.done.set()

    @property
    def ids(self) -> list[int]:
        return [token.token for token in self.tokens]


class Ends(Observer):
    """Remembers how sequences ended."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def ended(self, run: Running, how: str, now: float) -> None:
        self.seen.append((run.task.id, how))


Start = Callable[..., Engine]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts engines and stops them after the test; each has told the end of every sequence once."""
    engines: list[Engine] = []

    def begin(decoder: FakeDecoder, **options: Any) -> Engine:
        engine = Engine(decoder, **options)
        engines.append(engine)
        engine.start()
        return engine

    yield begin
    for engine in engines:
        engine.decoder.gate.set()  # type: ignore[attr-defined]
        engine.stop()
        assert engine.join(60)
        assert (engine.running, engine.waiting) == (0, 0)


def task(prompt: Sequence[int], count: int, sink: Gather, sampling: Sampling | None = None, **more: Any) -> Task:
    """A task for `count` tokens."""
    return Task(more.pop("id", "t"), tuple(prompt), sampling or Sampling(temperature=0), count, sink, **more)


def alone(prompt: Sequence[int], count: int, sampling: Sampling | None = None) -> list[int]:
    """The same without an engine, from a decoder's one row, in one chunk."""
    logits, ids = FakeDecoder().hashed, list(prompt)
    sampler = Sampler(sampling or Sampling(temperature=0), 861, prompt)
    for _ in range(count):
        ids.append(sampler.choose(logits(ids)))
    return ids[len(prompt) :]
