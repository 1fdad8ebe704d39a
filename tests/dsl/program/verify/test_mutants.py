"""Programs with one thing changed: the proof refuses what goes wrong in some order of events, and says so of each."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from helpers.cores import meet
from helpers.mutants import mutants
from helpers.simulate import Await, Look, Outcome, Transfer, explore, outcome
from helpers.small import CASES, Case, program
from helpers.tiers import thorough_but

from mks.dsl.program.ir import Program
from mks.dsl.program.verify.prove import prove

TILES = (5, 0, 1, 2)  # of a cache, or experts; with up to three slots

# Why a changed Program does the same as the one that it was made from.
SURVIVE = {
    r"to \d+ ": "nothing between its old place and its new one touches its slot or its collective",
    r".* exchanged with ": "the two touch different slots, or the same in layers that do not meet",
    r"[+]1 slot": "more slots than are used at once; of a ring, with as many under way as before",
    r"-1 slot": "nothing is under way in the slot that is gone, as its transfers set out at their use",
    r"another layer in (CopyStart|StoreWait) ": "the same entry there, or one whose wait may come a layer earlier",
    r"(without|twice) CopyStart vectors ": "before the first layer, which does not run that part",
    r"(without|twice|one more in|one less in) Start ": "its transfers lie beyond the end of the tape, and do nothing",
    r"(without|twice) StoreWait ": "of a single layer: nothing was saved before it",
    r"twice Barrier": "cores that have met meet again",
    r"(one less|fewer bytes) in Wait ": "beyond the end of the tape",
}
# What the proof refuses although no order of events goes wrong here.
REFUSED = {
    r"E227: .* holds two things": "lowering gives each value a buffer; the proof does not ask when values are in use",
    r"E228: .*its buffer is .*, and must be": "lowering gives each value a buffer, and its view lies in that one",
    r"E228: .*(its slots|slots) is \d+, and must be": "a stream has the slots that the schedule says",
    r"E228: .*is refused room for \d+ slots": "so few layers and tiles do not reach the slot that is not there",
    r"E229: `trace ": "lowering lets a value leave where the definition has set it",
    r".*others of the same kinds": "with other layers of the same kinds it goes wrong",
}


@pytest.fixture(autouse=True, scope="module")
def _forget() -> None:
    """Nothing is kept between runs."""
    explore.cache_clear()
    meet.cache_clear()


def outcomes(program: Program) -> dict[int, Outcome]:
    """Of a Program that is right, by tiles."""
    found = {tiles: outcome(program, tiles) for tiles in TILES}
    for each in found.values():
        assert each.wrong == frozenset()
        assert all(len(tags) == 1 and None not in tags for tags in each.seen.values())
    return found


def same(base: dict[int, Outcome], changed: Program) -> bool:
    """Whether another Program does the same in every order of events."""
    return all(outcome(changed, tiles) == base[tiles] for tiles in TILES)


def why(table: dict[str, str], words: str) -> str | None:
    """The first reason that fits."""
    return next((reason for pattern, reason in table.items() if re.match(pattern, words)), None)


def judged(case: Case, every: int) -> Counter[str]:
    """Each mutant, or one of so many: `caught`, `missed`, `same`, or `refused` though it does the same."""
    whole = program(case)
    assert prove(whole) == []
    base, found, unexplained = outcomes(whole), Counter(), []
    for words, changed in list(mutants(whole))[::every]:
        said, equal = prove(changed), same(base, changed)
        kind = "caught" if said and not equal else "missed" if not equal else "refused" if said else "same"
        found[kind] += 1
        if kind == "refused":
            notes = [f"{d.code}: {d.message}; {'; '.join(d.notes)}" for d in said]
            unexplained += [(words, note) for note in notes if why(REFUSED, note) is None]
        elif kind == "missed" or (kind == "same" and why(SURVIVE, words) is None):
            unexplained.append((words, kind))
    assert unexplained == []
    return found


# Of each case's mutants one of so many is tried, of which at least so many are caught.
EACH = [
    (case, *counts)
    for case, counts in zip(
        CASES,
        ((1, 150), (1, 150), (1, 140), (2, 60), (2, 60), (9, 40), (9, 40), (40, 15), (40, 15), (40, 15)),
        strict=True,
    )
]


@pytest.mark.parametrize(("case", "every", "least"), thorough_but(EACH[:8], EACH), ids=str)
def test_mutants(case: Case, every: int, least: int) -> None:
    """What goes wrong is refused, what is accepted does the same; of what is left the reason is known."""
    found = judged(case, every)

    assert found["missed"] == 0
    assert found["caught"] >= least


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_mutants(case: Case) -> None:
    """As above, every one of them."""
    found = judged(case, 1)

    assert found["missed"] == 0
    assert found["caught"] >= 140


def test_what_the_simulator_sees() -> None:
    """Each kind of fault is seen in some order of events, and none in a ring that is right."""
    slot, counter = ("slot",), ("counter",)
    made = {
        "start": Transfer(None, slot, counter, 4, "a"),
        "next": Transfer(None, slot, counter, 4, "b"),
        "wait": Await(counter, 4),
        "half": Await(counter, 2),
        "read": Look(slot, "who"),
    }

    def ring(*events: str) -> frozenset[str] | None:
        seen, wrong = explore(tuple(made[name] for name in events))
        return None if not wrong and seen.get("who", frozenset("a")) == frozenset("a") else wrong

    assert ring("start", "wait", "read", "next", "wait") is None
    assert ring("start", "read", "wait") is not None
    assert ring("start", "wait", "next", "read", "wait") is not None
    assert ring("start", "half", "read", "half") is not None
    assert ring("start", "wait", "wait") == {"a wait never ends"}
    assert ring("start", "wait", "read", "next") == {"a transfer is under way at the end"}
    assert ring("start", "half", "half", "read", "next", "half") is not None


def test_what_meeting_cores_see() -> None:
    """Three cores are right with a barrier, and wrong without it; two collectives at once on one set of buffers are."""
    talk = (("send", "set", "a"), ("receive", "set", "a"), ("send", "set", "b"), ("receive", "set", "b"))
    barrier = (("barrier", "", ""),)

    seen, wrong = meet((*barrier, *talk), 3)
    assert not wrong
    assert all(len(tags) == 1 for tags in seen.values())
    assert meet(talk, 3)[1] == {"a message comes to a core that is not in the call"}
    crossed = (talk[0], talk[2], talk[1], talk[3])
    seen, wrong = meet((*barrier, *crossed), 2)
    assert wrong or any(len(tags) > 1 for tags in seen.values())
