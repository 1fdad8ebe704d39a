"""A traced Program does what the other does, and gives what every run of a part leaves."""

from __future__ import annotations

import pytest
from helpers.definitions import FOLDER
from helpers.rewrite import mapped

from mks.dsl.frontend import load_definition
from mks.dsl.model.instantiate import instantiate
from mks.dsl.program import ir as p
from mks.dsl.program.lower.lower import lower


def programs(name: str) -> tuple[p.Program, p.Program]:
    """A shipped definition's first schedule, lowered without and with traces."""
    definition = load_definition(FOLDER / f"{name}.mks")
    schedule = next(s for s in definition.schedules.values() if s.model.drafts is None)
    instance, _ = instantiate(schedule.model)
    assert instance is not None
    return lower(schedule, instance, 2), lower(schedule, instance, 2, traced=True)


@pytest.mark.parametrize("name", ["qwen3", "qwen38", "kimi_k3"])
def test_ops_are_only_added(name: str) -> None:
    """Without the ops and rooms of traces it is the other Program."""
    plain, traced = programs(name)

    def other(op: p.Op) -> tuple[p.Op, ...]:
        match op:
            case p.StoreStart(copy) | p.StoreWait(copy) if isinstance(copy, p.TraceRef):
                return ()
            case p.Emit(_, made) if isinstance(made, p.TraceRef):
                return ()
            case p.Compute(outputs) if isinstance(outputs[0], p.TraceRef):
                return ()
        return (op,)

    assert traced.phase.body != plain.phase.body
    assert mapped(traced.phase.body, other) == plain.phase.body
    assert {n: b for n, b in traced.buffers.items() if not isinstance(n, p.TraceRef)} == plain.buffers
    assert (traced.products, traced.rings, traced.arrays) == (plain.products, plain.rings, plain.arrays)


def test_what_is_traced() -> None:
    """Carried values and buffers after each part, its own values, and what the step begins with."""
    _, traced = programs("kimi_k3")
    kinds = {name: array for name, array in traced.outputs.items() if array.kind == "trace"}
    banks = traced.buffers[p.ModelBufferRef("banks")]

    assert kinds[p.TraceRef("step", "x")].shape == traced.buffers[p.ValueRef("", "x")].shape
    for part in ("enter", "kda", "mla", "leave", "dense", "moe"):
        runs = sum(part in parts for parts in traced.phase.layer_parts.values())
        for name in ("x", "h", "a"):
            assert kinds[p.TraceRef(part, name)].shape == (runs, *traced.buffers[p.ValueRef("", name)].shape)
        assert kinds[p.TraceRef(part, "banks")].shape == (runs, *banks.shape)
    assert kinds[p.TraceRef("moe", "score")].part == "moe"
    assert p.TraceRef("moe", "x") in kinds
    assert p.TraceRef("mla", "z") not in kinds
