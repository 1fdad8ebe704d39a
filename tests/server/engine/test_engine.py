"""Continuous batching."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from mks.server.commands.generate import generate
from mks.server.engine.failures import QueueFull
from mks.server.engine.sampling_params import Sampling
from mks.server.engine.scores import Scored, score
from mks.server.text.answer import Limits

from ..conftest import wait_for
from ..fake import FakeDecoder, FakeStep
from ..tasks import Gather, Start, alone, start, task

__all__ = ["start"]


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
    wait_for(lambda: ("step", (0,)) in decoder.calls)
    engine.submit([task(range(40), 1, second)])
    decoder.gate.set()

    wait_for(lambda: len(second.tokens) == 1)
    chunks = [at for at, (name, about) in enumerate(decoder.calls) if name == "prefill" and about[0] == 1]
    assert len(chunks) == 10
    assert all(decoder.calls[at + 1][0] == "step" for at in chunks[:-1])


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
    assert decoder.calls[:3] == [("prefill", (0, 0, 1)), ("step", (0,)), ("prefill", (0, 0, 1))]


def test_tokens_are_handed_on_while_the_next_step_runs(start: Start) -> None:
    """A step that does not end keeps nobody from the tokens before it; the last ones wait for no step."""
    permits = threading.Semaphore(0)

    class Held(FakeDecoder):
        def step(self, *args: Any) -> FakeStep:
            begun = super().step(*args)
            return FakeStep(lambda: permits.acquire(timeout=20) and begun.wait())

    decoder, sink = Held(rows=1), Gather()
    start(decoder).submit([task([1], 4, sink)])
    for count in range(1, 4):
        wait_for(lambda count=count: len(decoder.calls) == 1 + count)  # type: ignore[misc]
        wait_for(lambda count=count: len(sink.tokens) == count)  # type: ignore[misc]
        permits.release()
    wait_for(lambda: len(sink.tokens) == 4)
    assert sink.ids == alone([1], 4)
    assert len(decoder.calls) == 4


def test_an_end_that_nobody_foresees_costs_a_step(start: Start) -> None:
    """Its token is dropped, and the row begins anew with the next sequence; ends that are known cost none."""
    decoder = FakeDecoder(rows=1)
    engine = start(decoder)
    sinks = [Gather(3), Gather(), Gather(), Gather(2)]
    last = alone([3], 4)[-1]
    ended = Gather(alone([3], 4).index(last) + 1)
    sinks[2] = ended
    engine.submit(
        [
            task([1], 9, sinks[0]),
            task([2], 4, sinks[1]),
            task([3], 9, ended, Sampling(temperature=0, end_ids=(last,))),
            task([4], 9, sinks[3]),
        ]
    )
    wait_for(lambda: len(sinks[3].tokens) == 2)
    assert [sink.ids for sink in sinks] == [alone([1], 3), alone([2], 4), alone([3], len(ended.ids)), alone([4], 2)]
    read = [at for at, (name, _) in enumerate(decoder.calls) if name == "prefill"]
    assert [b - a - 1 for a, b in itertools.pairwise(read)] == [3, 3, len(ended.ids) - 1]


def test_logits_come_for_those_who_need_them(start: Start) -> None:
    """A greedy sequence is told ids alone, unless something changes its logits or wants to see them."""
    asked: dict[int, set[bool]] = {}

    class Asked(FakeDecoder):
        def step(self, tokens: Any, positions: Any, logits: Collection[int] = ()) -> FakeStep:
            for row in range(self.rows):
                if tokens[row]:
                    asked.setdefault(self._held[row][0], set()).add(row in logits)
            return super().step(tokens, positions, logits)

    engine = start(Asked(rows=8))
    plain = Sampling(temperature=0)
    cases = {
        1: (plain, {}),
        2: (Sampling(seed=1), {}),
        3: (plain, {"logprobs": 0}),
        4: (Sampling(top_k=1), {}),
        5: (evolve(plain, presence_penalty=1.0), {}),
        6: (evolve(plain, logit_bias=((7, 2.0),)), {}),
        7: (evolve(plain, min_tokens=3, end_ids=(9,)), {}),
        8: (evolve(plain, repetition_penalty=1.5), {}),
    }
    sinks = {first: Gather() for first in cases}
    engine.submit([task([first], 6, sinks[first], sampling, **more) for first, (sampling, more) in cases.items()])
    wait_for(lambda: all(len(sink.tokens) == 6 for sink in sinks.values()))

    for first, (sampling, _) in cases.items():
        assert sinks[first].ids == alone([first], 6, sampling)
    assert asked == {1: {False}, 2: {True}, 3: {True}, 4: {False}, 5: {True}, 6: {True}, 7: {True, False}, 8: {True}}
    assert [token.logprob is not None for token in sinks[3].tokens] == [True] * 6


def test_a_prompt_is_not_read_on_for_nobody(start: Start) -> None:
    """A sequence that is cancelled while its prompt is read costs one more chunk at most."""
    decoder = FakeDecoder(rows=2, chunk=4, delay=0.01, context=4000)
    engine = start(decoder)
    runs = engine.submit([task(range(800), 1, Gather())])
    wait_for(lambda: len(decoder.calls) >= 2)
    engine.cancel(runs)
    seen = len(decoder.calls)
    wait_for(lambda: engine.running == 0)
    assert len(decoder.calls) <= seen + 1


def test_who_waits_longest_is_next(start: Start) -> None:
    """Sequences begin in the order in which they came, and prompts that are read at a time take turns."""
    decoder = FakeDecoder(rows=2, chunk=4)
    engine = start(decoder)
    decoder.gate.clear()
    engine.submit([task([1], 2, Gather())])
    wait_for(lambda: ("step", (0,)) in decoder.calls)
    order: list[int] = []

    class Told(Gather):
        def began(self, cached: int) -> None:
            order.append(self.want)

    sinks = [Told(want) for want in range(1, 7)]
    for sink in sinks:
        engine.submit([task(range(12), 10, sink)])
    decoder.gate.set()
    wait_for(lambda: all(len(sink.tokens) == sink.want for sink in sinks))
    assert order == [1, 2, 3, 4, 5, 6]
    read = [about[0] for name, about in decoder.calls if name == "prefill"]
    assert [1, 0, 1, 0] in [read[at : at + 4] for at in range(len(read))]


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


def test_prompt_scores_are_those_of_the_whole_prompt(start: Start) -> None:
    """Read in chunks or not, every token but the first has its score, and nothing more is made of zero tokens."""
    decoder = FakeDecoder(chunk=3)
    engine = start(decoder)
    prompt, sink = [3, 1, 4, 1, 5, 9, 2], Gather()
    engine.submit([task(prompt, 0, sink, prompt_logprobs=2)])

    assert sink.done.wait(60)
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
