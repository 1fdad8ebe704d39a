"""Each kind of fault that a Program can have beside the order of its events is refused, wherever it can be made."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from attrs import evolve, frozen
from helpers.definitions import FOLDER
from helpers.drawing import draw
from helpers.kinds import KINDS, Mutants, stale_read
from helpers.mutants import placed
from helpers.rewrite import replaced, with_body
from helpers.small import CASES, program

from mks.dsl.frontend import load_definition
from mks.dsl.model import ir as m
from mks.dsl.program import ir as p
from mks.dsl.program.lower.lower import lower
from mks.dsl.program.verify.prove import prove

SHIPPED = ("smollm2", "qwen3", "qwen38", "kimi_k3")
EXPERTS = CASES[7]
# So many of a Program's mutants are tried in the quick suite.
FEW = 2


def shipped() -> Iterator[p.Program]:
    """Shipped Programs of few and of many rows, and of tokens of one sequence."""
    for name in SHIPPED:
        definition = load_definition(FOLDER / f"{name}.mks")
        schedule = definition.schedules[definition.own_schedules[0]]
        assert schedule is not None
        for rows, consecutive in ((min(schedule.rows), False), (max(schedule.rows), False), (8, True)):
            yield lower(schedule, definition.instances[name], rows, consecutive=consecutive)


def accepted(mutants: Mutants, most: int) -> tuple[int, list[int]]:
    """How many of a Program's mutants were tried, at most so many, and the numbers of those that the proof accepts."""
    every = list(mutants)
    tried = [round(i * (len(every) - 1) / (most - 1)) for i in range(most)] if len(every) > most else range(len(every))
    return len(tried), [i for i in tried if not prove(every[i])]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_kinds(kind: object) -> None:
    """Of the small Programs: some have the kind, and none of it is accepted."""
    found = [accepted(kind(program(case)), FEW) for case in CASES]  # type: ignore[operator]

    assert sum(tried for tried, _ in found) > 1
    assert [missed for _, missed in found if missed] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_all_kinds(kind: object) -> None:
    """All of them, of the small Programs and of the shipped ones."""
    every = [*map(program, CASES), *shipped()]

    assert [missed for each in every if (missed := accepted(kind(each), 10**6)[1])] == []  # type: ignore[operator]


def test_shipped_programs_are_what_the_definitions_say() -> None:
    """The same Programs as they are; traced ones too."""
    definition = load_definition(FOLDER / "kimi_k3.mks")
    schedule = definition.schedules[definition.own_schedules[0]]
    assert schedule is not None

    assert [d for each in shipped() for d in prove(each)] == []
    assert prove(lower(schedule, definition.instances["kimi_k3"], 2, traced=True)) == []


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 400), marks=pytest.mark.slow)], ids=str)
def test_drawn_programs_are_what_their_definitions_say(seeds: range) -> None:
    """Definitions and schedules of every construct, traced ones too: none that is lowered is refused."""
    lowered = [made for seed in seeds for made in (draw(seed).lowered(traced=seed % 2 > 0),)]
    programs = [made for made in lowered if isinstance(made, p.Program)]

    assert len(programs) > len(seeds) // 2
    assert [d for each in programs for d in prove(each)] == []


def test_what_is_said() -> None:
    """E228 and E229: at the op's line, with what there is and what is touched; with what is made of what."""
    whole = program(EXPERTS)
    (bank,) = whole.banks.values()
    (found,) = prove(evolve(whole, banks={bank.name: evolve(bank, slots=bank.slots + 1)}))
    assert (found.code, found.message) == ("E228", "`experts moe` is refused room for 5 slots")

    late = next(stale_read(whole))
    (found,) = prove(late)
    assert found.code == "E229"
    assert found.message == "`leave.m` is not what the definition says: not made of the earlier `x`"

    path, op = next(
        (path, op)
        for path, op in placed(whole)
        if isinstance(op, p.Compute) and op.outputs == (p.ValueRef("kda", "kn"),)
    )
    assert isinstance(op, p.Compute)
    assert isinstance(op.node, m.Call)
    heads = op.node.args[0]
    assert isinstance(heads, m.Call)
    wrong = evolve(op.node, args=(evolve(heads, args=(m.Local("q", heads.args[0].type, op.span),)),))
    (found,) = prove(replaced(whole, path, (evolve(op, node=wrong),)))
    assert (found.code, found.primary and found.primary.span) == ("E229", op.span)
    assert found.message == (
        "`kda.kn` is not what the definition says: made of the value `kda.q` and not made of the value `kda.k`"
    )


@frozen
class Unheard:
    """An op that no spec has a row for."""


def test_what_has_no_row_is_refused() -> None:
    """An op, an exchange, an array or an op of expressions that the spec does not know."""
    whole = program(EXPERTS)
    made = whole.exchanges[p.SumRef("mla", "a")]
    unheard = evolve(made.kind, operation="unheard")
    array = whole.arrays[p.TableRef("embed")]
    path, op = next((path, op) for path, op in placed(whole) if isinstance(op, p.Compute) and len(path) > 2)
    assert isinstance(op, p.Compute)
    node = m.Call("unheard", (op.node,), (), (op.node.type,), op.span)
    changed = (
        with_body(whole, (*whole.phase.body, Unheard())),
        evolve(whole, exchanges=whole.exchanges | {made.name: evolve(made, kind=unheard)}),
        evolve(whole, arrays=whole.arrays | {array.name: evolve(array, kind="unheard")}),
        replaced(whole, path, (evolve(op, node=node),)),
    )

    for each in changed:
        (found,) = prove(each)
        assert found.code in ("E228", "E229")
        assert "nothing is known of" in found.message or "no meaning is known of" in found.message
