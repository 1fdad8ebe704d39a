"""Traced Programs on TPUs: compiled for machines that are not attached."""

from __future__ import annotations

import pytest
from helpers.definitions import FOLDER

pytest.importorskip("libtpu")

from mks.backends.pallas.aot.measure import compile_step
from mks.dsl.frontend import load_definition
from mks.dsl.program.ir import TraceRef
from mks.dsl.program.lower.lower import lower


@pytest.mark.parametrize(
    "model", ["qwen3", pytest.param("qwen38", marks=pytest.mark.slow), pytest.param("kimi_k3", marks=pytest.mark.slow)]
)
def test_traces_fit_beside_the_kernel(model: str) -> None:
    """At the definition's own sizes they take little, and XLA copies nothing for them."""
    found = load_definition(FOLDER / f"{model}.mks")
    schedule = found.schedules[found.own_schedules[0]]
    assert schedule is not None
    program = lower(schedule, found.instances[model], 1, traced=True)
    made = compile_step(program)

    rooms = sum(b.shape[0] for name, b in program.buffers.items() if isinstance(name, TraceRef))
    assert rooms == sum(a.kind == "trace" and a.part is not None for a in program.outputs.values())
    assert 0 < made.vmem < int(schedule.target.memory.vmem.value)
