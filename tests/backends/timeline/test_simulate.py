"""Transfers share the path, waits block, messages follow one another: small lists with times known by hand."""

import pytest
from attrs import evolve

from mks.backends.timeline.actions import Await, Collect, Issue, Post, Run, Where
from mks.backends.timeline.simulate import Trace, simulate
from mks.dsl.targets.target import Figure, Target
from mks.dsl.targets.targets import targets

A = Where("part", 0, "a")
B = Where("part", 0, "b")
MICRO = 1e-6


@pytest.fixture
def simple() -> Target:
    """One byte takes a picosecond; a transfer sets out after a microsecond."""
    made = targets["tpu7x"]
    memory = evolve(made.memory, hbm_rate=Figure(1e12, "test"), hbm_latency=Figure(MICRO, "test"))
    return evolve(made, memory=memory)


def gapless(trace: Trace) -> bool:
    """Whether spans follow one another from the start to the end."""
    at = 0.0
    for span in trace.spans:
        if abs(span.start - at) > 1e-12 or not 0 <= span.busy <= span.seconds + 1e-12:
            return False
        at = span.stop
    return abs(at - trace.step) < 1e-12


def test_one_transfer_takes_its_latency_and_its_bytes(simple: Target) -> None:
    """A million bytes at 1 TB/s take one microsecond after one of latency; HBM is busy for the second."""
    trace = simulate([Issue(A, 1, 1_000_000, "x"), Await(A, 1, "copy")], simple)
    assert trace.step == pytest.approx(2 * MICRO)
    assert trace.busy == pytest.approx(MICRO)
    assert gapless(trace)


def test_transfers_share_the_rate(simple: Target) -> None:
    """A short one beside a long one gets half of the rate; the long one then has all of it."""
    actions = [Issue(A, 1, 1_000_000, "x"), Issue(B, 2, 3_000_000, "y"), Await(A, 1, "copy"), Await(B, 2, "copy")]
    trace = simulate(actions, simple)
    stops = {transfer.where.what: transfer.stop for transfer in trace.transfers}
    assert stops["a"] == pytest.approx(3 * MICRO)
    assert stops["b"] == pytest.approx(5 * MICRO)


def test_computing_hides_a_transfer(simple: Target) -> None:
    """What has arrived meanwhile is not waited for."""
    trace = simulate([Issue(A, 1, 1_000_000, "x"), Run(B, 5 * MICRO), Await(A, 1, "copy")], simple)
    assert trace.step == pytest.approx(5 * MICRO)
    assert [span.kind for span in trace.spans] == ["vpu"]


def test_later_phases_start_when_they_are_waited_for(simple: Target) -> None:
    """The first phase runs beside computing; the second cannot begin before its sum."""
    trace = simulate([Post(A, 1, (3 * MICRO, 3 * MICRO)), Run(B, 5 * MICRO), Collect(A, 1, MICRO)], simple)
    assert trace.step == pytest.approx((5 + 1 + 3 + 1) * MICRO)
    assert [round(message.start / MICRO) for message in trace.messages] == [0, 6]
    assert gapless(trace)


def test_a_free_wait_costs_nothing(simple: Target) -> None:
    """But its bytes still take their share of the path."""
    actions = [Issue(A, 1, 1_000_000, "x"), Await(A, 1, "copy"), Issue(B, 2, 1_000_000, "y"), Await(B, 2, "copy")]
    paid, free = simulate(actions, simple), simulate(actions, simple, frozenset({("part", "a")}))
    assert paid.step == pytest.approx(4 * MICRO)
    assert free.step == pytest.approx(3 * MICRO)


def test_waiting_for_what_never_set_out_is_refused(simple: Target) -> None:
    """A Program that hangs has no time."""
    with pytest.raises(RuntimeError, match="never set out"):
        simulate([Await(A, 1, "copy")], simple)
