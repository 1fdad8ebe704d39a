"""What the engine does when the decoder fails, hangs or is late, and when it is to stop."""

from __future__ import annotations

import logging
import time

import numpy as np
import pytest

from mks.server.engine import engine as engine_module
from mks.server.engine.engine import PATIENCE, Health
from mks.server.engine.failures import DeadlinePassed, EngineFailure, NotAccepting
from mks.server.engine.sequence import NotFinite

from ..conftest import wait_for
from ..fake import FakeDecoder
from ..tasks import Ends, Gather, Start, alone, start, task

__all__ = ["start"]


def test_a_failing_step_fails_the_sequences_in_it(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Their ids are logged, their rows are free again, and the engine goes on."""
    decoder = FakeDecoder(rows=2)
    engine = start(decoder)
    bad, good = Gather(), Gather(2)
    decoder.gate.clear()
    engine.submit([task([1], 50, bad, id="one")])
    wait_for(lambda: ("step", (0,)) in decoder.calls)
    decoder.fail_next = 1
    with caplog.at_level(logging.ERROR):
        decoder.gate.set()
        assert bad.done.wait(60)
    engine.submit([task([2], 2, good)])
    wait_for(lambda: len(good.tokens) == 2)

    assert isinstance(bad.error, EngineFailure)
    assert "fire" not in str(bad.error)
    assert "failed under one" in caplog.text
    assert engine.health() is Health.READY
    assert good.ids == alone([2], 2)


def test_a_step_that_fails_after_it_was_begun(start: Start) -> None:
    """What the step before gave is handed on; the sequences in it fail, and the engine goes on."""
    decoder = FakeDecoder(rows=2)
    engine = start(decoder)
    bad, good = Gather(), Gather(2)
    decoder.gate.clear()
    engine.submit([task([1], 50, bad)])
    wait_for(lambda: ("step", (0,)) in decoder.calls)
    decoder.gate.set()
    wait_for(lambda: len(bad.tokens) > 3)
    decoder.fail_waits = 1
    assert bad.done.wait(60)
    engine.submit([task([2], 2, good)])
    wait_for(lambda: len(good.tokens) == 2)

    assert isinstance(bad.error, EngineFailure)
    assert bad.ids == alone([1], len(bad.ids))
    steps = sum(name == "step" for name, _ in decoder.calls) - 1
    assert len(bad.ids) == steps
    assert good.ids == alone([2], 2)


@pytest.mark.parametrize("unharmed", [True, False])
def test_a_failed_prompt_takes_others_with_it_only_where_their_rows_are_lost(start: Start, unharmed: bool) -> None:
    """The decoder is set up again at once; queued sequences know nothing of it."""
    decoder, ends = FakeDecoder(rows=2), Ends()
    decoder.unharmed = unharmed
    engine = start(decoder, observer=ends)
    running, failing, queued = Gather(9), Gather(), Gather(4)
    decoder.gate.clear()
    engine.submit([task([1], 9, running, id="running")])
    wait_for(lambda: ("step", (0,)) in decoder.calls)
    engine.submit([task([2], 9, failing, id="failing"), task([3], 4, queued, id="queued")])
    prefill = decoder.prefill

    def broken(row: int, ids: list[int], at: int, last_only: bool = False) -> np.ndarray:
        if list(ids) == [2]:
            raise RuntimeError("the chip is on fire")
        return prefill(row, ids, at, last_only)

    decoder.prefill = broken  # type: ignore[method-assign]
    decoder.gate.set()

    wait_for(lambda: len(ends.seen) == 3)
    assert isinstance(failing.error, EngineFailure)
    assert queued.ids == alone([3], 4)
    assert ("reset", ()) in decoder.calls
    if unharmed:
        assert running.ids == alone([1], 9)
    else:
        assert isinstance(running.error, EngineFailure)
    how = "length" if unharmed else "error"
    assert sorted(ends.seen) == [("failing", "error"), ("queued", "length"), ("running", how)]


def test_a_decoder_that_cannot_be_set_up_is_tried_again(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Meanwhile the engine is unwell and the queue waits; then it goes on."""
    monkeypatch.setattr(engine_module, "PAUSE", 0.05)
    decoder = FakeDecoder(rows=1)
    engine = start(decoder)
    decoder.fail_next, decoder.fail_resets = 1, 3
    bad, good = Gather(), Gather(3)
    engine.submit([task([1], 5, bad), task([2], 3, good)])
    assert bad.done.wait(60)
    wait_for(lambda: engine.health() is Health.FAILED)

    wait_for(lambda: len(good.tokens) == 3)
    assert decoder.calls.count(("reset", ())) == 4
    assert engine.health() is Health.READY


def test_a_decoder_that_keeps_failing_is_reported(start: Start) -> None:
    """After several failures in a row the engine is unwell; one good call mends it."""
    decoder = FakeDecoder()
    engine = start(decoder)
    decoder.fail_next = PATIENCE
    for _ in range(PATIENCE):
        sink = Gather()
        engine.submit([task([1], 1, sink)])
        assert sink.done.wait(60)
    assert engine.health() is Health.FAILED

    sink = Gather(1)
    engine.submit([task([1], 1, sink)])
    wait_for(lambda: len(sink.tokens) == 1)
    assert engine.health() is Health.READY


def test_a_decoder_mends_without_requests(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is unwell is sent no requests, so it tries its decoder itself until that works."""
    monkeypatch.setattr(engine_module, "PAUSE", 0.02)
    decoder = FakeDecoder()
    engine = start(decoder)
    decoder.fail_next = PATIENCE + 4
    for _ in range(PATIENCE):
        sink = Gather()
        engine.submit([task([1], 1, sink)])
        assert sink.done.wait(60)
    assert engine.health() is Health.FAILED
    wait_for(lambda: engine.health() is Health.READY)
    tried = len(decoder.calls)
    time.sleep(0.1)
    assert len(decoder.calls) == tried


def test_logits_that_are_no_numbers_fail_their_sequence_only(start: Start) -> None:
    """NaN in one row is that row's failure."""
    decoder = FakeDecoder(rows=2)
    hashed = decoder.hashed
    decoder._logits_of = lambda held: np.full(861, np.nan, np.float32) if held[0] == 5 else hashed(held)
    engine = start(decoder)
    bad, good = Gather(), Gather(4)
    engine.submit([task([5], 4, bad), task([6], 4, good)])

    assert bad.done.wait(60)
    wait_for(lambda: len(good.tokens) == 4)
    assert isinstance(bad.error, NotFinite)


def test_a_fault_of_the_engine_itself_is_no_end(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever goes wrong in a pass, its sequences are told and later ones are served."""
    engine = start(FakeDecoder())

    def passed(tokens: int) -> None:
        engine.observer.passed = lambda tokens: None  # type: ignore[method-assign]
        raise ZeroDivisionError

    engine.observer.passed = passed  # type: ignore[method-assign]
    bad, good = Gather(), Gather(2)
    with caplog.at_level(logging.ERROR):
        engine.submit([task([1], 2, bad)])
        assert bad.done.wait(60)
    engine.submit([task([2], 2, good)])

    wait_for(lambda: len(good.tokens) == 2)
    assert "ZeroDivisionError" in caplog.text


def test_stopping_lets_running_answers_end(start: Start) -> None:
    """New and queued work is refused, what runs ends in time."""
    decoder = FakeDecoder(rows=1)
    engine = start(decoder)
    decoder.gate.clear()
    sinks = [Gather(), Gather()]
    engine.submit([task([1], 5, sinks[0])])
    wait_for(lambda: engine.running == 1)
    engine.submit([task([2], 5, sinks[1])])
    engine.stop(seconds=20)
    assert engine.health() is Health.STOPPING
    assert isinstance(sinks[1].error, NotAccepting)
    with pytest.raises(NotAccepting):
        engine.submit([task([3], 1, Gather())])
    decoder.gate.set()

    assert engine.join(60)
    assert [len(sink.tokens) for sink in sinks] == [5, 0]


def test_what_is_not_done_at_the_deadline_fails(start: Start) -> None:
    """Running sequences are told."""
    decoder = FakeDecoder(rows=1, context=4000)
    engine = start(decoder)
    sink = Gather()
    engine.submit([task([1], 3900, sink)])
    wait_for(lambda: len(sink.tokens) > 0)
    engine.stop()

    assert engine.join(60)
    assert isinstance(sink.error, EngineFailure)


def test_a_sequence_past_its_own_deadline_fails(start: Start) -> None:
    """Running or queued; the others know nothing of it."""
    decoder, ends = FakeDecoder(rows=1, context=4000, delay=0.002), Ends()
    engine = start(decoder, observer=ends)
    late, queued, good = Gather(), Gather(), Gather(3)
    soon = time.monotonic() + 0.15
    engine.submit([task([1], 3900, late, id="late", deadline=soon), task([2], 3, queued, id="queued", deadline=soon)])
    engine.submit([task([3], 3, good, id="good")])

    assert late.done.wait(60)
    assert queued.done.wait(60)
    wait_for(lambda: len(good.tokens) == 3)
    assert isinstance(late.error, DeadlinePassed)
    assert isinstance(queued.error, DeadlinePassed)
    assert late.tokens
    assert good.ids == alone([3], 3)
    wait_for(lambda: len(ends.seen) == 3)
    assert sorted(ends.seen) == [("good", "length"), ("late", "error"), ("queued", "error")]


def test_a_hanging_step_shows_in_the_health(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """A sequence that gets no token for long is told and named, and the engine is stalled; an idle engine is not."""
    decoder, ends = FakeDecoder(), Ends()
    engine = start(decoder, stall_seconds=0.05, observer=ends)
    assert engine.health() is Health.READY
    decoder.gate.clear()
    sink, good = Gather(), Gather(2)
    with caplog.at_level(logging.ERROR):
        engine.submit([task([1], 3, sink, id="stuck")])
        wait_for(lambda: engine.health() is Health.STALLED)
        assert sink.done.wait(60)
    assert isinstance(sink.error, EngineFailure)
    assert "under it: stuck" in caplog.text
    decoder.gate.set()

    wait_for(lambda: engine.health() is Health.READY)
    engine.submit([task([2], 2, good, id="good")])
    wait_for(lambda: len(ends.seen) == 2)
    assert good.ids == alone([2], 2)
    assert ends.seen == [("stuck", "error"), ("good", "length")]
