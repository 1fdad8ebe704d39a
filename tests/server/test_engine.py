"""Continuous batching."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from mks.server.answer import Limits
from mks.server.engine import PATIENCE, Engine, EngineFailure, Health, NotAccepting, QueueFull
from mks.server.generate import generate
from mks.server.sampling import Sampler, Sampling
from mks.server.scores import Scored, score
from mks.server.sequence import NotFinite, Task

from .conftest import wait_for
from .fake import FakeDecoder


class Gather:
    """A sink that keeps what it gets; finished after `want` tokens."""

    def __init__(self, want: int = 10**6) -> None:
        self.want = want
        self.tokens: list[Scored] = []
        self.prompt: list[Scored] = []
        self.error: Exception | None = None
        self.done = threading.Event()

    def scored(self, prompt: Sequence[Scored]) -> None:
        self.prompt += prompt

    def emitted(self, tokens: Sequence[Scored]) -> bool:
        self.tokens += tokens
        return len(self.tokens) >= self.want

    def ended(self) -> None:
        self.done.set()

    def failed(self, error: Exception) -> None:
        self.error = error
        self.done.set()

    @property
    def ids(self) -> list[int]:
        return [token.token for token in self.tokens]


Start = Callable[..., Engine]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts engines and stops them after the test."""
    engines: list[Engine] = []

    def begin(decoder: FakeDecoder, **options: float) -> Engine:
        engine = Engine(decoder, **options)  # type: ignore[arg-type]
        engines.append(engine)
        engine.start()
        return engine

    yield begin
    for engine in engines:
        engine.decoder.gate.set()  # type: ignore[attr-defined]
        engine.stop()
        assert engine.join(10)


def task(prompt: Sequence[int], count: int, sink: Gather, sampling: Sampling | None = None, **more: int) -> Task:
    """A task for `count` tokens."""
    return Task("t", tuple(prompt), sampling or Sampling(temperature=0), count, sink, **more)


def alone(prompt: Sequence[int], count: int, sampling: Sampling | None = None) -> list[int]:
    """The same without an engine, from a decoder's one row, in one chunk."""
    logits, ids = FakeDecoder().hashed, list(prompt)
    sampler = Sampler(sampling or Sampling(temperature=0), 861, prompt)
    for _ in range(count):
        ids.append(sampler.choose(logits(ids)))
    return ids[len(prompt) :]


def test_sequences_do_not_mix(start: Start) -> None:
    """More sequences than rows, of many lengths and parameters: each is what it is alone."""
    engine = start(FakeDecoder(rows=3, chunk=5))
    cases = []
    for number in range(13):
        prompt = [number + 7 * at for at in range(1 + 5 * (number % 4))]
        sampling = Sampling(temperature=1.2 * (number % 2), seed=number // 4, presence_penalty=float(number % 3 == 0))
        cases.append((prompt, 1 + 3 * (number % 5), sampling, Gather()))
    engine.submit([task(prompt, count, sink, sampling) for prompt, count, sampling, sink in cases])

    wait_for(lambda: all(len(sink.tokens) == count for _, count, _, sink in cases))
    for prompt, count, sampling, sink in cases:
        assert sink.ids == alone(prompt, count, sampling)
        assert sink.error is None


def test_prompts_are_read_between_steps(start: Start) -> None:
    """While a long prompt is read in chunks, the other sequence gets a token after every chunk."""
    decoder = FakeDecoder(rows=2, chunk=4)
    engine = start(decoder)
    first, second = Gather(), Gather(1)
    decoder.gate.clear()
    engine.submit([task([1], 30, first)])
    wait_for(lambda: ("decode", (0,)) in decoder.calls)
    engine.submit([task(range(40), 1, second)])
    decoder.gate.set()

    wait_for(lambda: len(second.tokens) == 1)
    chunks = [at for at, (name, about) in enumerate(decoder.calls) if name == "prefill" and about[0] == 1]
    assert len(chunks) == 10
    assert all(decoder.calls[at + 1][0] == "decode" for at in chunks[:-1])


def test_a_row_is_taken_over_within_a_step(start: Start) -> None:
    """A cancelled sequence gets nothing more, and its row goes to the next in the queue."""
    decoder = FakeDecoder(rows=1)
    engine = start(decoder)
    first, second = Gather(), Gather()
    decoder.gate.clear()
    runs = engine.submit([task([1], 200, first)])
    wait_for(lambda: len(first.tokens) == 1)
    engine.submit([task([2], 3, second)])
    engine.cancel(runs)
    decoder.gate.set()

    wait_for(lambda: len(second.tokens) == 3)
    assert len(first.tokens) == 1
    assert decoder.calls[:3] == [("prefill", (0, 0, 1)), ("decode", (0,)), ("prefill", (0, 0, 1))]


def test_a_queued_sequence_is_cancelled_at_once(start: Start) -> None:
    """It leaves the queue although no step ends."""
    decoder = FakeDecoder(rows=1)
    engine = start(decoder)
    decoder.gate.clear()
    running = engine.submit([task([1], 200, Gather())])
    wait_for(lambda: engine.running == 1)
    queued = engine.submit([task([2], 1, Gather())])
    assert engine.waiting == 1

    engine.cancel(queued)
    assert engine.waiting == 0
    engine.cancel(running)


def test_the_queue_is_bounded(start: Start) -> None:
    """As many as may wait are taken, all or none of a request; the next is refused."""
    decoder = FakeDecoder(rows=1)
    engine = start(decoder, max_waiting=2)
    decoder.gate.clear()
    engine.submit([task([1], 2, Gather())])
    wait_for(lambda: engine.running == 1)
    engine.submit([task([1], 2, Gather()), task([1], 2, Gather())])

    with pytest.raises(QueueFull):
        engine.submit([task([1], 2, Gather())])
    assert engine.waiting == 2


def test_a_failing_step_fails_the_sequences_in_it(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Their ids are logged, their rows are free again, and the engine goes on."""
    decoder = FakeDecoder(rows=2)
    engine = start(decoder)
    bad, good = Gather(), Gather(2)
    decoder.gate.clear()
    engine.submit([task([1], 50, bad)])
    wait_for(lambda: ("decode", (0,)) in decoder.calls)
    decoder.fail_next = 1
    with caplog.at_level(logging.ERROR):
        decoder.gate.set()
        assert bad.done.wait(10)
    engine.submit([task([2], 2, good)])
    wait_for(lambda: len(good.tokens) == 2)

    assert isinstance(bad.error, EngineFailure)
    assert "fire" not in str(bad.error)
    assert "failed under t" in caplog.text
    assert engine.health() is Health.READY


def test_a_decoder_that_keeps_failing_is_reported(start: Start) -> None:
    """After several failures in a row the engine is unwell; one good call mends it."""
    decoder = FakeDecoder()
    engine = start(decoder)
    decoder.fail_next = PATIENCE
    for _ in range(PATIENCE):
        sink = Gather()
        engine.submit([task([1], 1, sink)])
        assert sink.done.wait(10)
    assert engine.health() is Health.FAILED

    sink = Gather(1)
    engine.submit([task([1], 1, sink)])
    wait_for(lambda: len(sink.tokens) == 1)
    assert engine.health() is Health.READY


def test_logits_that_are_no_numbers_fail_their_sequence_only(start: Start) -> None:
    """NaN in one row is that row's failure."""
    decoder = FakeDecoder(rows=2)
    hashed = decoder.hashed
    decoder._logits_of = lambda held: np.full(861, np.nan, np.float32) if held[0] == 5 else hashed(held)
    engine = start(decoder)
    bad, good = Gather(), Gather(4)
    engine.submit([task([5], 4, bad), task([6], 4, good)])

    assert bad.done.wait(10)
    wait_for(lambda: len(good.tokens) == 4)
    assert isinstance(bad.error, NotFinite)


def test_stopping_lets_running_answers_end(start: Start) -> None:
    """New work is refused, what is there ends in time."""
    decoder = FakeDecoder(rows=1)
    engine = start(decoder)
    decoder.gate.clear()
    sinks = [Gather(), Gather()]
    engine.submit([task([1], 5, sinks[0]), task([2], 5, sinks[1])])
    engine.stop(seconds=20)
    assert engine.health() is Health.STOPPING
    with pytest.raises(NotAccepting):
        engine.submit([task([3], 1, Gather())])
    decoder.gate.set()

    assert engine.join(10)
    assert [len(sink.tokens) for sink in sinks] == [5, 5]


def test_what_is_not_done_at_the_deadline_fails(start: Start) -> None:
    """Running and queued sequences are told."""
    decoder = FakeDecoder(rows=1, context=4000)
    engine = start(decoder)
    sinks = [Gather(), Gather()]
    engine.submit([task([1], 3900, sinks[0]), task([2], 5, sinks[1])])
    wait_for(lambda: len(sinks[0].tokens) > 0)
    engine.stop()

    assert engine.join(10)
    assert all(isinstance(sink.error, EngineFailure) for sink in sinks)


def test_a_hanging_step_shows_in_the_health(start: Start) -> None:
    """A sequence that runs but gets no token for long makes the engine stalled; an idle engine is not."""
    decoder = FakeDecoder()
    engine = start(decoder, stall_seconds=0.05)
    assert engine.health() is Health.READY
    decoder.gate.clear()
    sink = Gather()
    engine.submit([task([1], 3, sink)])

    wait_for(lambda: engine.health() is Health.STALLED)
    decoder.gate.set()
    wait_for(lambda: engine.health() is Health.READY)


def test_prompt_scores_are_those_of_the_whole_prompt(start: Start) -> None:
    """Read in chunks or not, every token but the first has its score, and nothing more is made of zero tokens."""
    decoder = FakeDecoder(chunk=3)
    engine = start(decoder)
    prompt, sink = [3, 1, 4, 1, 5, 9, 2], Gather()
    engine.submit([task(prompt, 0, sink, prompt_logprobs=2)])

    assert sink.done.wait(10)
    expected = [score(decoder.hashed(prompt[:at]), prompt[at], 2) for at in range(1, len(prompt))]
    assert sink.prompt == [Scored(prompt[0]), *expected]
    assert sink.tokens == []


def test_generate_is_the_engine_for_one() -> None:
    """`mks run` gives the same tokens, and the logits of every prompt position."""
    decoder = FakeDecoder(rows=2, chunk=3)
    got = generate(decoder, [1, 2, 3, 4], Sampling(temperature=0), Limits(6), lambda token: b"x", keep_logits=True)

    assert got.ids == alone([1, 2, 3, 4], 6)
    assert got.delta.text == "xxxxxx"
    assert got.logits is not None
    assert np.array_equal(got.logits, np.stack([decoder.hashed([1, 2, 3, 4][:at]) for at in range(1, 5)]))
