"""Programs of which one thing is another: what the proof accepts does the same, and why is known."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from helpers.cores import meet
from helpers.simulate import explore, outcome
from helpers.small import CASES, Case, program
from helpers.wrong import wrong

from mks.dsl.program.verify.prove import prove

_SLOTTED = r"(vectors|state|entry|tiles of|experts) .*"
# Why a changed Program computes the same.
EQUIVALENT = {
    r"neighbours ": "the two touch different things, or the order of what they start does not matter",
    r"twice (Compute|Lookup|Argmax|Emit|RopeTables|Route) ": "what is computed again of the same values is the same",
    r"twice Barrier ": "cores that have met meet again",
    r"((without|twice) Start |Start at .*: count )": "its transfers lie beyond the end of the tape, or come later",
    r"((without|twice) StoreWait |StoreWait at )": "nothing was saved before it, or its wait may come a layer earlier",
    r"CopyStart at .*: ahead ": "the step's own entry is of no layer",
    rf"buffers {_SLOTTED}: shape 0: \d+ is \d+$": "room for slots that nobody uses",
    r"(copies|caches) .*: slots \d+ is \d+$": "nothing is under way in the slot that is gone, or one more is not used",
    r"caches .*: buffers 0 and 1 exchanged": "tiles of both caches are alike, and each has a buffer",
    r"rings unstreamed weights: slots ": "its transfers set out at their use",
    r"(turns|RopeTables|Attend|Route) .*: call (reads|\d)": "of the op's own call only its options and its types count",
    r".*reads `mla.q` for `query of |.*: `query of .* is `": "the query is the value as it is",
    r"buffers query of .*: dtype ": "the value has been rounded before",
    r".*operands of `(add|mul)` exchanged": "it is the same sum or product",
    r"views \S+ and \S+ exchanged": "packing lays a layer's small weights where their views say",
    r".*: guard is ": "it holds in every layer that runs the part, else `test_kinds[guarded]` sees it",
    r"buffers m and operand of step.out exchanged": "they differ in their places, and the step has both",
}


@pytest.fixture(autouse=True, scope="module")
def _forget() -> None:
    """Nothing is kept between runs."""
    explore.cache_clear()
    meet.cache_clear()


def unexplained(case: Case, every: int) -> tuple[Counter[str], list[str]]:
    """Of a Program's mutants, one of so many: how many were refused, and those accepted for no known reason."""
    found, without = Counter[str](), []
    for words, changed in list(wrong(program(case)))[::every]:
        refused = bool(prove(changed))
        found["refused" if refused else "accepted"] += 1
        if not refused and not any(re.match(pattern, words) for pattern in EQUIVALENT):
            without.append(words)
    return found, without


@pytest.mark.parametrize(("case", "every"), list(zip(CASES, (3, 9, 9, 9, 9, 29, 59, 97, 97, 97), strict=True)), ids=str)
def test_wrong_programs(case: Case, every: int) -> None:
    """Most are refused; of the others the reason is known."""
    found, without = unexplained(case, every)

    assert without == []
    assert found["refused"] > 5 * found["accepted"]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_wrong_programs(case: Case) -> None:
    """As above, every one of them."""
    found, without = unexplained(case, 1)

    assert without == []
    assert found["refused"] > 900


def test_accepted_neighbours_do_the_same() -> None:
    """In every order of events: what each op finds is what it finds in the Program as it was."""
    whole = program(CASES[0])
    base = outcome(whole, 3)
    changed = [(words, each) for words, each in wrong(whole) if words.startswith("neighbours") and not prove(each)]

    assert len(changed) > 10
    assert [words for words, each in changed if outcome(each, 3) != base] == []
