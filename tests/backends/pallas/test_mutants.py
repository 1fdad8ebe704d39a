"""What the interpreter finds of the faults that the proof finds, in both of its ways to run transfers.

`pytest -m slow tests/backends/pallas/test_mutants.py` takes many minutes: faults run in child processes, and those that
hang are given up after a minute.
"""

from __future__ import annotations

import pytest
from attrs import evolve
from helpers.cases import Case, lowered
from helpers.kernels import MODES, run, same
from helpers.mutants import mutants
from helpers.simulate import outcome
from helpers.toys import DENSE

from mks.dsl.program.proof import prove

RING = Case(
    DENSE, (((17,), (250,)),),
    "target v5e 1x1\ncontext 512\n"
    "stream all {\nslots = 3\nslot = 2560 KiB\nattention : (wq, wk, wv), wo\nmlp : (gate, up), down\nstep : out\n}\n"
    "prefetch vectors at previous part\nprefetch attention.cache at attention.start (tile = 128 tokens, slots = 2)\n",
    sizes=(("layers", 2), ("vocab", 128)), filled=True,
)  # fmt: skip


def wrong(case: Case) -> list[str]:
    """The mutants of a case that go wrong in some order of events."""
    program = lowered(case)
    base = outcome(program, 2)
    return [words for words, changed in mutants(program) if outcome(changed, 2) != base]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_what_the_interpreter_finds() -> None:
    """On one core, one of the two modes shows every fault: as a race, a result, a semaphore, or by hanging for ever.

    What only the proof finds is a barrier that is missing: interpreted cores are all there from the start.
    """
    picked = wrong(RING)[::8]
    program = dict(mutants(lowered(RING)))
    runs = [evolve(RING, mode=mode, fault=fault) for fault in ("", *picked) for mode in MODES]
    base, found = {}, {}
    for case, result in zip(runs, run(runs, seconds=60), strict=True):
        if not case.fault:
            assert not isinstance(result, str)
            base[case.mode] = result
        else:
            seen = isinstance(result, str) or bool(same(result, base[case.mode]))
            found[case.fault] = found.get(case.fault, False) or seen

    assert len(picked) >= 15
    assert all(prove(program[fault]) for fault in picked)
    assert [fault for fault, seen in found.items() if not seen] == []
