"""Sums that are left scattered: when they are waited for, and what they may be added to."""

from __future__ import annotations

import pytest
from helpers.definitions import changed

from mks.dsl.diagnostics import MksError
from mks.dsl.program import ir as p
from mks.dsl.program.ir.scratch import collective
from mks.dsl.program.ir.walk import walk
from mks.dsl.program.lower.lower import lower

S, X = p.SumRef("moe", "s"), p.SumRef("moe", "x")


def kimi(*edits: tuple[str, str], rows: int = 8) -> p.Program:
    """Kimi K3's Program with some of its lines changed."""
    found = changed("kimi_k3", *edits)
    schedule = found.schedules["kimi_k3", "ironwood16"]
    assert schedule is not None
    return lower(schedule, found.instances["kimi_k3"], rows)


def test_a_scattered_sum_travels_until_it_is_read() -> None:
    """The shared experts' sum is sent before the routed ones are multiplied, and received after them."""
    ops = [at.op for at in walk(kimi()) if at.place == "moe"]
    sent, received = ops.index(p.Send(S)), ops.index(p.Receive(S))
    experts = next(at for at, op in enumerate(ops) if isinstance(op, p.Experts))

    assert sent < experts < received < ops.index(p.Send(X))


def test_each_core_completes_its_columns() -> None:
    """A sum and what is left scattered: a round with the squares that all need, then the columns come together."""
    program = kimi()
    first, second = (collective(program, program.exchanges[name]) for name in (X, p.ColumnsRef(X)))

    assert [each.message for each in first.rounds] == [8 * (256 + 128) * 2]
    assert [each.message for each in second.rounds] == [8 * 256 * 2]


@pytest.mark.parametrize("by", ["direct", "two_level"])
def test_other_sums_take_no_scattered_value(by: str) -> None:
    """They have no phase in which a core has its own columns only."""
    with pytest.raises(MksError) as refused:
        kimi(("reduce moe.x, dense.x  (by = scatter_gather", f"reduce moe.x, dense.x  (by = {by}"))
    (found,) = refused.value.diagnostics
    assert (found.code, found.helps) == ("E901", ("write `by = scatter_gather` for the sum",))


def test_the_first_expert_sets_out_alone() -> None:
    """The others of the slots after it, so that it need not share the way with them."""
    program = kimi()
    (bank,) = program.banks.values()
    fetches = [at.op for at in walk(program) if isinstance(at.op, p.Fetch)]

    assert fetches == [p.Fetch(bank.name, 0, 1), p.Fetch(bank.name, 1, bank.slots)]
