"""Whole steps of shipped schedules, compiled for machines that are not attached: XLA copies nothing large round them.

`pytest -m slow tests/backends/pallas/emit/test_kernel_ahead.py` compiles them at more rows.
"""

from __future__ import annotations

import re
from functools import cache, partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from attrs import evolve
from helpers.definitions import FOLDER, changed
from helpers.schedules import EXPANDED
from jax.sharding import Mesh, NamedSharding, PartitionSpec

pytest.importorskip("libtpu")

from mks.backends.pallas.aot import hlo
from mks.backends.pallas.aot.compiler import compile_ahead, meshed
from mks.backends.pallas.aot.measure import compile_step, copies
from mks.backends.pallas.emit.call import BuildMode
from mks.backends.pallas.emit.shard_map import arguments, build, layouts
from mks.backends.pallas.emit.signature import operands, states
from mks.backends.pallas.runtime.multi_step import several
from mks.dsl.frontend import load_definition
from mks.dsl.model.instance import Instance
from mks.dsl.model.ir import Codec
from mks.dsl.program.analysis.memory import bill
from mks.dsl.program.analysis.traffic import read_arrays
from mks.dsl.program.ir import Program
from mks.dsl.program.lower.lower import lower
from mks.dsl.schedule.ir import Schedule, Store


@cache
def program(model: str, rows: int) -> Program:
    """Of a definition's first schedule."""
    schedule, instance = shipped(model)
    return lower(schedule, instance, rows)


def shipped(model: str) -> tuple[Schedule, Instance]:
    """A definition's first schedule, at the sizes that it declares."""
    found = load_definition(FOLDER / f"{model}.mks")
    schedule = found.schedules[found.own_schedules[0]]
    assert schedule is not None
    return schedule, found.instances[model]


def moved(program: Program, text: str) -> list[str]:
    """What is as large as the smallest of a core's tapes, tables and caches, or has a state's shape."""
    kept = states(program)
    large = [a for name, a in (operands(program) | kept).items() if not name.startswith(("vectors", "state"))]
    least = min(prod(a.shape) * a.dtype.itemsize for a in large)
    shapes = {tuple(n for n in a.shape if n > 1) for a in kept.values()}
    return [
        str(move)
        for move in hlo.moves(text)
        if move.nbytes >= least or tuple(n for n in move.array.shape if n > 1) in shapes
    ]


def check(model: str, rows: int) -> None:
    made = program(model, rows)
    text = compile_step(made).compiled.hlo
    assert moved(made, text) == []
    assert len(hlo.kernels(text)) == 1 + any(array.kind == "state" for array in made.arrays.values())
    assert [kernel.promoted for kernel in hlo.kernels(text) if kernel.promoted and not small(kernel, made)] == []


def small(kernel: hlo.Kernel, program: Program) -> bool:
    """Whether only tokens and positions are in VMEM before a call."""
    return all(prod(array.shape) == program.rows for array in kernel.promoted)


@pytest.mark.parametrize("model", ["smollm2", "qwen3", "qwen38"])
def test_nothing_is_copied(model: str) -> None:
    """No weight, state or cache is copied, and none is moved into VMEM before the call."""
    check(model, 1)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [2, 4, 8])
@pytest.mark.parametrize("model", ["smollm2", "qwen3", "qwen38"])
def test_nothing_is_copied_of_more_rows(model: str, rows: int) -> None:
    """The same of several rows."""
    check(model, rows)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "slots", "experts"), [(1, 16, 4), (8, 14, 3)])
def test_kimi_k3_with_experts_as_fp8(rows: int, slots: int, experts: int) -> None:
    """With so many slots of the stream and of experts: both memories hold it, as the bill says."""
    schedule, instance = shipped("kimi_k3")
    stores = tuple(Store(f"moe.{name}", Codec("fp8", 256), schedule.span) for name in ("gate", "up", "down"))
    streams = tuple(evolve(stream, slots=slots) for stream in schedule.streams)
    fetches = tuple(evolve(fetch, slots=experts) for fetch in schedule.fetches)
    made = lower(evolve(schedule, stores=stores, streams=streams, fetches=fetches), instance, rows)
    step, charged = compile_step(made), bill(made)

    assert moved(made, step.compiled.hlo) == []
    assert step.vmem <= charged.total <= charged.limit
    assert charged.total < 1.06 * step.vmem
    assert 80 * 2**30 < step.hbm < 94.7 * 2**30
    assert step.hbm == pytest.approx(charged.held, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 8])
def test_a_cache_kept_expanded(rows: int) -> None:
    """Kimi K3 on 32 cores: nothing is copied, not even latents, which no kernel reads; the bill is near the truth."""
    found = changed("kimi_k3", ("  fetch moe.experts", f"  {EXPANDED}  fetch moe.experts"))
    schedule = found.schedules[found.own_schedules[0]]
    assert schedule is not None
    whole = lower(schedule, found.instances["kimi_k3"], rows)
    made = compile_step(whole)
    assert moved(whole, made.compiled.hlo) == []
    assert made.vmem <= bill(whole).total <= 1.05 * made.vmem
    assert taken(made.compiled.hlo, whole) == set(map(str, read_arrays(whole))) & states(whole).keys()

    here, mesh = meshed(schedule)
    loop = compile_ahead(*steps(whole, mesh), here, schedule.axes)
    assert copies(whole, loop.hlo) == ()
    assert taken(loop.hlo, whole) == set(map(str, read_arrays(whole))) & states(whole).keys()


def taken(text: str, made: Program) -> set[str]:
    """The states and caches, all of them of different shapes, that the kernel takes as operands."""
    (call,) = re.findall(r"%kimi_k3\S* = .*operand_layout_constraints=\{(.*?)\}, custom_call_has", text)
    shapes = set(re.findall(r"\w+\[[\d,]*\]", call))
    kinds = {"bfloat16": "bf16", "float32": "f32"}
    named = {name: f"{kinds[str(a.dtype)]}[{','.join(map(str, a.shape))}]" for name, a in states(made).items()}
    return {name for name, shape in named.items() if shape in shapes}


def steps(made: Program, mesh: Mesh) -> tuple[Any, tuple[Any, ...]]:
    """Four steps in one call, and what it takes."""
    everywhere, lies = NamedSharding(mesh, PartitionSpec()), layouts(made, mesh)
    tokens, positions, weights, held = arguments(made, mesh)
    count, ends = (jax.ShapeDtypeStruct(shape, jnp.int32, sharding=everywhere) for shape in ((), (2,)))
    run = partial(
        several,
        build(made, BuildMode(vmem=int(made.schedule.target.memory.vmem.value)), mesh),
        made.schedule.context,
        4,
    )
    function = jax.jit(
        run,
        donate_argnums=5,
        out_shardings=(everywhere, lies),
        in_shardings=(*[everywhere] * 4, {n: a.sharding for n, a in weights.items()}, lies),
    )
    return function, (tokens, positions, count, ends, weights, held)


def test_what_a_step_reads() -> None:
    """All that a shipped one is given; of latents that are kept expanded only what was made of them."""
    for name in ("smollm2", "qwen38", "kimi_k3"):
        made = program(name, 1)
        given = operands(made).keys() | states(made).keys()
        assert set(map(str, read_arrays(made))) == {each for each in given if not each.startswith("tape ")}
    found = changed("kimi_k3", ("  fetch moe.experts", f"  {EXPANDED}  fetch moe.experts"))
    schedule = found.schedules[found.own_schedules[0]]
    assert schedule is not None
    made = lower(schedule, found.instances["kimi_k3"], 1)
    assert states(made).keys() - set(map(str, read_arrays(made))) == {"mla.lat", "mla.com"}


def test_copies_are_seen() -> None:
    """A cache or a state that is copied does not go unnoticed."""
    made = program("qwen38", 1)
    for name in ("attention.keys", "state delta.S"):
        array = states(made)[name]
        type_ = f"{'bf16' if array.dtype.itemsize == 2 else 'f32'}[{','.join(map(str, array.shape))}]"
        text = (
            f"ENTRY %main (p: {type_}) -> {type_} {{\n  %p = {type_} parameter(0)\n  ROOT %c = {type_} copy(%p)\n}}\n"
        )
        assert len(moved(made, text)) == 1
