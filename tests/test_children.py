"""Limits of tests can say no: of processes, of calls, and of a tier's cost."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from helpers import children
from helpers.tiers import thorough_but

ROOT = Path(__file__).parents[1]


def test_a_process_that_takes_too_long() -> None:
    """Behind its seconds of a processor it is ended; what it sleeps does not count."""
    assert children.run([sys.executable, "-c", "while True: pass"], seconds=0).returncode == -signal.SIGXCPU
    assert children.run([sys.executable, "-c", "import time; time.sleep(1.5)"], seconds=0).returncode == 0


def test_a_call() -> None:
    """Its result, or what it raised; the child goes on."""
    assert children.call("math:hypot", 3, 4) == 5
    with pytest.raises(children.Failed, match="ValueError: "):
        children.call("math:sqrt", -1)
    assert children.call("os:getpid") == children.call("os:getpid")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("function", "argument", "error"),
    [("builtins:exec", "while True: pass", "took 1 s"), ("time:sleep", 3600, "waits"), ("os:_exit", 7, "ended with")],
)
def test_a_call_that_does_not_come_back(function: str, argument: object, error: str) -> None:
    """One that runs for ever, one that waits, and one that ends the child: the next call has another."""
    with pytest.raises((children.Hangs, children.Failed), match=error):
        children.call(function, argument, seconds=1)
    assert children.call("math:hypot", 3, 4) == 5


@pytest.mark.parametrize(("factor", "status"), [("1", 0), ("0.000001", 1)])
def test_a_tier_that_costs_too_much(factor: str, status: int) -> None:
    """Its tests pass, and the run fails."""
    line = [sys.executable, "-m", "pytest", "-q", "tests/server/text/test_text.py", "tests/dsl/text/test_textmate.py"]
    done = children.run(line, cwd=ROOT, env=os.environ | {"TEST_BUDGET": factor}, capture_output=True, text=True)
    assert done.returncode == status, done.stdout
    assert "failed" not in done.stdout
    assert ("too much" in done.stdout) == bool(status)


def test_parameters_of_which_some_are_thorough() -> None:
    """The others are as they were, and what stands for all must be one of them."""
    first, second = thorough_but((2,), (1, 2))
    assert (first.values, [mark.name for mark in first.marks], second) == ((1,), ["thorough"], 2)
    assert thorough_but((), [(1, 2)])[0].values == (1, 2)
    assert thorough_but((), [(1, 2)], single=True)[0].values == ((1, 2),)
    with pytest.raises(AssertionError):
        thorough_but((3,), (1, 2))
