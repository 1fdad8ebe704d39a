"""Interpreted kernels notice what is wrong with them: Programs without one of their waits.

`pytest -m slow tests/backends/pallas/emit/test_kernel_faults.py` tries every wait of every kind of movement.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from attrs import evolve
from helpers.cases import Case, lowered
from helpers.kernels import MODES, Found, Outcome, run, same
from helpers.mutants import mutants
from helpers.toys import DELTA, DENSE

pytestmark = pytest.mark.timeout(3000)

STEPS = (((17, 250), (300, 7)),)
STREAM = "stream all {{\nslots = 3\nslot = 2560 KiB\n{}\nmlp : (gate, up), down\nstep : out\n}}\n"
EARLY = (
    "prefetch vectors at previous part\nprefetch attention.cache at attention.start (tile = 256 tokens, slots = 2)\n"
)
DENSE_LINES = "target v5e 1x1\ncontext 512\n" + STREAM.format("attention : (wq, wk, wv), wo") + EARLY
DELTA_LINES = (
    "target v5e 1x1\ncontext 512\n"
    + STREAM.format("delta : (wq, wk, wv, wz, wb, wa), wo\nattention : (wq, wk, wv), wo")
    + EARLY
    + "prefetch delta.state at previous mlp.h\n"
)
MODELS = {"dense": Case(DENSE, STEPS, DENSE_LINES, filled=True), "delta": Case(DELTA, STEPS, DELTA_LINES, filled=True)}
WAITS = ("Wait", "CopyWait", "StoreWait")


@cache
def faults(model: str) -> tuple[str, ...]:
    """The waits that can be left out, but for those on slots that this model does not use again."""
    words = (words for words, _ in mutants(lowered(MODELS[model])))
    found = (each for each in words if each.split()[0] == "without" and each.split()[1] in WAITS)
    return tuple(each for each in found if model != "delta" or "entry" not in each)


def some(model: str) -> tuple[str, ...]:
    """The first wait of each kind."""
    return tuple(next(words for words in faults(model) if words.split()[1] == wait) for wait in WAITS)


@cache
def noticed(model: str, every: bool) -> dict[str, str]:
    """By fault, what an interpreter says of it: a race, a hang, another result; nothing in neither mode is empty."""
    case, found = MODELS[model], dict.fromkeys(faults(model) if every else some(model), "")
    for mode in reversed(MODES):
        left = [words for words, said in found.items() if not said]
        cases = [evolve(case, mode=mode, fault=words) for words in ("", *left)]
        sound, *outcomes = run(cases, seconds=120)
        assert not isinstance(sound, str), sound
        assert right(sound)
        found |= {words: wrong(sound, outcome) for words, outcome in zip(left, outcomes, strict=True)}
    return found


def right(found: list[Found]) -> bool:
    """Whether a kernel gives what the reference gives."""
    return all(np.allclose(step.logits, step.wanted, rtol=0, atol=1e-4) for step in found)


def wrong(sound: list[Found], outcome: Outcome) -> str:
    """In a few words what is wrong with an outcome."""
    return outcome if isinstance(outcome, str) else ", ".join(same(sound, outcome))


@pytest.mark.thorough
def test_without_a_wait() -> None:
    """A stream's wait, a load's and a save's are each missed; with them nothing is said."""
    assert [words for words, said in noticed("dense", every=False).items() if not said] == []


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_without_any_wait(model: str) -> None:
    """Each of all waits is missed."""
    assert [words for words, said in noticed(model, every=True).items() if not said] == []
