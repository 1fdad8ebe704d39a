"""What earlier prompts leave behind for later ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from mks.server.engine.engine import Engine
from mks.server.engine.prefix import SHORTEST, PrefixStore
from mks.server.engine.sampling_params import Sampling

from ..conftest import wait_for
from ..fake import FakeDecoder, FakeSaved
from ..tasks import Gather, Start, alone, start, task

__all__ = ["start"]

END = 7  # ends a turn
PROMPT = [*range(100, 118), END, 3, 4]


def ask(engine: Engine, prompt: Sequence[int], count: int = 4, sampling: Sampling | None = None, **more: int) -> Gather:
    """One answer, checked against what it is without an engine."""
    sink = Gather()
    engine.submit([task(prompt, count, sink, sampling, **more)])
    wait_for(lambda: len(sink.tokens) == count or sink.error is not None)
    assert sink.ids == alone(prompt, count, sampling)
    return sink


@pytest.mark.parametrize("cuts", [True, False])
def test_a_conversation_that_goes_on_is_not_read_again(start: Start, cuts: bool) -> None:
    """The next turn begins where the last prompt ended, and its answer is the same as without."""
    decoder = FakeDecoder(rows=2, cuts=cuts)
    engine = start(decoder, prefix_cache_bytes=10**6, turn_ids=[END])
    first = ask(engine, PROMPT)
    assert first.cached == 0
    longer = [*PROMPT, *first.ids, END, *range(30)]
    decoder.calls.clear()

    assert ask(engine, longer).cached == len(PROMPT)
    read = [about for name, about in decoder.calls if name == "prefill"]
    assert read[0][1] == len(PROMPT)
    assert sum(about[2] for about in read) == len(longer) - len(PROMPT)


def test_states_resume_only_where_they_were_kept(start: Start) -> None:
    """Where the end of the prompt differs, what cuts goes on from the last equal token, what does not from a turn."""
    changed = [*PROMPT[:-1], 5, 6, 8, 9]
    for cuts, cached in ((True, len(PROMPT) - 1), (False, len(PROMPT) - 2)):
        engine = start(FakeDecoder(cuts=cuts), prefix_cache_bytes=10**6, turn_ids=[END])
        ask(engine, PROMPT)
        assert ask(engine, changed).cached == cached
        assert ask(engine, [*PROMPT[:10], 1, 2, 3]).cached == (10 if cuts else 0)


@pytest.mark.parametrize("cuts", [True, False])
def test_the_same_prompt_is_read_once(start: Start, cuts: bool) -> None:
    """Asked again, or several times at once, with other parameters: nothing is left to read."""
    decoder = FakeDecoder(rows=3, cuts=cuts)
    engine = start(decoder, prefix_cache_bytes=10**6)
    sinks = [Gather() for _ in range(3)]
    hot = [Sampling(temperature=1.0, seed=seed) for seed in range(3)]
    engine.submit([task(PROMPT, 5, sink, sampling) for sink, sampling in zip(sinks, hot, strict=True)])
    wait_for(lambda: all(len(sink.tokens) == 5 for sink in sinks))
    assert [sink.ids for sink in sinks] == [alone(PROMPT, 5, sampling) for sampling in hot]
    assert sorted(sink.cached or 0 for sink in sinks) == [0, len(PROMPT), len(PROMPT)]
    assert ask(engine, PROMPT).cached == len(PROMPT)
    assert sum(about[2] for name, about in decoder.calls if name == "prefill") == len(PROMPT)


def test_prompt_scores_need_the_whole_prompt(start: Start) -> None:
    """A prompt whose scores are asked for is read from its beginning, and not kept."""
    engine = start(FakeDecoder(), prefix_cache_bytes=10**6)
    ask(engine, PROMPT)
    scored = ask(engine, PROMPT, prompt_logprobs=1)
    assert scored.cached == 0
    assert len(scored.prompt) == len(PROMPT)
    other = [9, *PROMPT]
    ask(engine, other, prompt_logprobs=1)
    assert ask(engine, other).cached == 0


def test_a_copy_is_not_held_up_by_one_that_leaves(start: Start) -> None:
    """Where the sequence that reads a prompt is cancelled, the one that waits for it reads it."""
    decoder = FakeDecoder(rows=2, chunk=4, delay=0.01)
    engine = start(decoder, prefix_cache_bytes=10**6)
    first, second = Gather(), Gather()
    runs = engine.submit([task(PROMPT, 3, first), task(PROMPT, 3, second)])
    wait_for(lambda: any(name == "prefill" for name, _ in decoder.calls))
    engine.cancel(runs[:1])

    wait_for(lambda: len(second.tokens) == 3)
    assert second.ids == alone(PROMPT, 3)


def test_what_cannot_be_restored_fails_its_sequence_only(start: Start) -> None:
    """A failure in keeping or restoring is the decoder's failure under that sequence."""
    decoder = FakeDecoder()
    engine = start(decoder, prefix_cache_bytes=10**6)
    ask(engine, PROMPT)
    restore, decoder.restore = decoder.restore, None  # type: ignore[method-assign,assignment]
    sink = Gather()
    engine.submit([task(PROMPT, 3, sink)])
    assert sink.done.wait(60)
    decoder.restore = restore  # type: ignore[method-assign]
    assert ask(engine, PROMPT).cached == len(PROMPT)


def saved(*ids: int) -> FakeSaved:
    """A row that has read so many tokens."""
    return FakeSaved(tuple(ids))


def test_the_store_keeps_within_its_limit() -> None:
    """The least recently used go first; what is too large for all of it is not kept."""
    store = PrefixStore(30_000, cuts=False)
    rows = [tuple(range(at, at + SHORTEST + 1)) for at in (0, 100, 200)]
    for row in rows:
        assert store.wants(row)
        store.keep(row, saved(*row), None)
    assert len(store) == 3
    assert not store.wants(rows[0])
    assert store.find([*rows[1], 1]) is not None
    fourth = tuple(range(300, 309))
    store.keep(fourth, saved(*fourth), None)

    assert len(store) == 3
    assert 0 < store.nbytes <= 30_000
    assert [store.find([*row, 1]) is not None for row in (*rows, fourth)] == [True, True, False, True]
    store.keep(range(50), saved(*range(50)), None)
    assert store.find([*range(50), 1]) is None or store.find([*range(50), 1])[1] == 9
    store.clear()
    assert (len(store), store.nbytes) == (0, 0)


def test_the_store_drops_what_a_longer_one_covers() -> None:
    """Only where sequences can be cut; else the shorter is all that a shorter beginning can use."""
    short, long = tuple(range(10)), tuple(range(20))
    for cuts in (True, False):
        store = PrefixStore(10**6, cuts)
        for row in (short, long):
            store.keep(row, saved(*row), np.zeros((1, 3), np.float32))
        assert len(store) == (1 if cuts else 2)
        found = store.find([*short, 99, 99])
        assert found is not None
        assert found[1] == 10
        whole = store.find(long)
        assert whole is not None
        assert whole[1] == 20
        assert whole[0].logits is not None


def test_short_beginnings_are_read_again() -> None:
    """Below a few tokens nothing is kept or used."""
    store = PrefixStore(10**6, cuts=True)
    assert not store.wants(range(SHORTEST - 1))
    store.keep(range(20), saved(*range(20)), None)
    assert store.find([*range(SHORTEST - 1), 99]) is None
    assert store.find([*range(SHORTEST), 99]) is not None
    # Without its logits the last token is read again.
    assert store.find(range(20))[1] == 19  # type: ignore[index]
