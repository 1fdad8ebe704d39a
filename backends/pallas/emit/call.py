"""A Program as one Pallas call, and the step around it: inputs in, ids and logits out, states and caches in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from attrs import frozen
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.layout import Layout, with_layout_constraint
from jax.experimental.pallas import tpu as pltpu

from ....dsl.model.ir import Ref
from ....dsl.program import ir as p
from ....dsl.program.ir.scratch import exchange_set
from ....dsl.program.ir.walk import tree
from ..collectives.peers import Cores, collective_id
from ..layout import position_blocks
from ..layout.tape import table
from .context import Core, Counters
from .emitter import emit
from .signature import ChosenRef, GivenRef, OutputRef, StepInput, TapeTableRef, TileListRef, signature
from .transfers import tiles

# By the labels of arrays.
type Arrays = Mapping[str, jax.Array]
type Outputs = dict[ChosenRef | OutputRef, jax.Array]

_STEP_KERNEL = 1


def layer_table(program: p.Program) -> np.ndarray:
    """int32 `[layers + 2, 2 * places]`: which part a place runs, -1 for none, and the how manyth of its layers that is.

    The rows before the first layer and after the last run nothing.
    """
    layers = program.phase.loop
    if layers is None:
        return np.full((2, 2), -1, np.int32)
    found = np.full((layers.stop - layers.start + 2, 2 * len(layers.choices)), -1, np.int32)
    for layer, parts in sorted(program.phase.layer_parts.items()):
        for choice in layers.choices:
            for i, (name, _) in enumerate(choice.bodies):
                if name in parts:
                    found[layer - layers.start + 1, 2 * choice.position :][:2] = i, program.layers_of(name).index(layer)
    return found


def scalar_tables(program: p.Program) -> dict[StepInput, np.ndarray]:
    """`[layers + 2, scalars]`: the numbers that depend on the layer, in the rows of the layer table.

    Whole ones are int32, the others f32; a table without any is left out.
    """
    some = ((StepInput.WHOLE, program.whole_scalars, np.int32), (StepInput.REAL, program.real_scalars, np.float32))
    return {
        name: np.pad(np.asarray([program.scalars[static] for static in own], np.float64).T, ((1, 1), (0, 0))).astype(
            dtype
        )
        for name, own, dtype in some
        if own
    }


@frozen
class BuildMode:
    """How a kernel is built: interpreted with these parameters, or compiled for `vmem` bytes."""

    interpret: Any = False
    vmem: int | None = None


def step(
    program: p.Program,
    build_mode: BuildMode,
    tokens: jax.Array,
    positions: jax.Array,
    weights: Arrays,
    held: Arrays,
    kept: jax.Array | int = 0,
) -> tuple[jax.Array, jax.Array, dict[str, jax.Array]]:
    """One core's part of a decode step: ids int32 `[rows]`, its logits f32 `[rows, share]`, states and caches after it.

    `tokens`, `positions` int32 `[rows]`; a row at a negative position is not live: it keeps its states, and its id and
    logits are undefined. Consecutive tokens begin from the states that were kept after token `kept` of the pass before.
    All cores of the mesh call it at once, under `shard_map` if there are several.
    """
    return traced(program, build_mode, tokens, positions, weights, held, kept)[:3]


def traced(
    program: p.Program,
    build_mode: BuildMode,
    tokens: jax.Array,
    positions: jax.Array,
    weights: Arrays,
    held: Arrays,
    kept: jax.Array | int = 0,
) -> tuple[jax.Array, jax.Array, dict[str, jax.Array], dict[str, jax.Array]]:
    """The same, and last what a traced Program gives of each part's runs."""
    outputs = _kernel(program, build_mode, tokens, positions, weights, held, kept)
    next_ids, logits = outputs[ChosenRef()][:, 0], outputs[OutputRef(p.LogitsRef())]
    traces = {a.name.label: outputs[OutputRef(a.name)] for a in program.outputs.values() if a.kind == "trace"}
    return next_ids, logits, commit(program, build_mode, positions, outputs, held), traces


def _kernel(
    program: p.Program,
    build_mode: BuildMode,
    tokens: jax.Array,
    positions: jax.Array,
    weights: Arrays,
    held: Arrays,
    kept: jax.Array | int,
) -> Outputs:
    """The call itself: reads the states and caches, and gives what they become beside the ids and logits."""
    read = position_blocks.before(positions[:1] if program.consecutive else positions, program)
    lists = {ring.tile: tiles(read, ring.tile, ring.positions) for ring in program.caches.values()}
    scalars: dict[GivenRef, jax.Array] = {
        StepInput.IDS: tokens,
        StepInput.AT: positions,
        StepInput.LAYERS: jnp.asarray(layer_table(program)),
    }
    if program.consecutive:
        scalars[StepInput.KEPT] = jnp.asarray(kept, jnp.int32).reshape(1)
    scalars |= {name: jnp.asarray(made) for name, made in scalar_tables(program).items()}
    scalars |= {TapeTableRef(ring): jnp.asarray(table(program, ring)) for ring in program.rings}
    scalars |= {TileListRef(tile): found for tile, found in lists.items()}
    columns = {StepInput.TOKENS: tokens[:, None], StepInput.POSITIONS: positions[:, None]}
    made = signature(program)
    given_arrays = [(weights if ref.array in made.operands else held)[ref.array.label] for ref in made.inputs]
    if not build_mode.interpret:
        given_arrays = [pltpu.with_memory_space_constraint(a, pltpu.HBM) for a in given_arrays]
    axes = program.schedule.axes
    cores = Cores(tuple(axes.items()), tuple(axes))

    def kernel(*refs: Any) -> None:
        names = iter(refs)
        given = {name: next(names) for name in (*scalars, *columns)}
        by_name: dict[Ref, Any] = {name: next(names) for name in (*made.inputs, *made.outputs)}
        for name, shapes in made.scratch.items():
            by_name[name] = next(names) if not isinstance(shapes, tuple) else [next(names) for _ in shapes]
        counters: Counters = dict.fromkeys(program.rings, (0, 0, 0))
        counters |= {exchange_set(program, e): (0,) for e in program.exchanges.values()}
        emit(tree(program), Core(program, by_name, given, counters, cores, layer=0))

    flat = [shape for shapes in made.scratch.values() for shape in (shapes if isinstance(shapes, tuple) else (shapes,))]
    space = lambda kind, many: [pl.BlockSpec(memory_space=kind)] * len(many)  # noqa: E731
    found = pl.pallas_call(
        kernel,
        out_shape=list(made.outputs.values()),
        in_specs=[*space(pltpu.SMEM, scalars), *space(pltpu.VMEM, columns), *space(pltpu.HBM, made.inputs)],
        out_specs=[pl.BlockSpec(memory_space=pltpu.VMEM), *space(pltpu.HBM, program.outputs)],
        scratch_shapes=flat,
        compiler_params=pltpu.CompilerParams(
            vmem_limit_bytes=build_mode.vmem,
            disable_bounds_checks=True,
            has_side_effects=bool(program.exchanges),
            collective_id=collective_id(cores, _STEP_KERNEL) if program.exchanges else None,
        ),
        interpret=build_mode.interpret,
        name=f"{program.schedule.model.name}_{program.schedule.name}_rows{program.rows}",
    )(*scalars.values(), *columns.values(), *given_arrays)
    return dict(zip(made.outputs, found, strict=True))


def commit(
    program: p.Program, build_mode: BuildMode, positions: jax.Array, new: Outputs, held: Arrays
) -> dict[str, jax.Array]:
    """States and caches after the step, in place.

    A call that talks to other cores may not write what the step was given: XLA would copy it in and out. So it gives
    new entries and states, and a call of this core alone moves them to where they belong.
    """
    after, made = dict(held), signature(program).states
    kept = [name for name in made if program.arrays[name].kind == "state"]
    if kept:
        after |= _moved(kept, build_mode, positions, new, held)
    caches = [name for name in made if isinstance(name, p.CacheRef)]
    after |= {
        name.label: _written(held[name.label], new[OutputRef(p.EntryRef(name))], positions, program) for name in caches
    }
    return {name: lying(a, build_mode) for name, a in after.items()}


def lying(array: jax.Array, build_mode: BuildMode) -> jax.Array:
    """A state or cache as kernels take it, the last axis innermost.

    Left to itself XLA would take another order of axes where layers and rows are few, and copy twice.
    """
    if build_mode.interpret:
        return array
    return with_layout_constraint(array, Layout(major_to_minor=tuple(range(array.ndim))))


def _written(cache: jax.Array, entries: jax.Array, positions: jax.Array, program: p.Program) -> jax.Array:
    """A cache with an entry of each live row whose position is this core's; consecutive tokens share one row."""
    for row in range(positions.shape[0]):
        at = row if cache.shape[1] > 1 else 0
        entry, place = entries[:, row : row + 1, :, None], (0, at, 0, position_blocks.place(positions[row], program), 0)
        kept = lax.dynamic_slice(cache, place, entry.shape)
        new = (positions[row] >= 0) & position_blocks.mine(positions[row], program)
        cache = lax.dynamic_update_slice(cache, jnp.where(new, entry, kept), place)
    return cache


def _moved(
    states: list[p.ArrayRef], build_mode: BuildMode, positions: jax.Array, new: Outputs, held: Arrays
) -> dict[str, jax.Array]:
    """States of live rows take the place of the old ones."""
    count, names = len(states), [state.label for state in states]

    def kernel(at: Any, *given: Any) -> None:
        *refs, semaphores = given

        def each(act: Callable[[Any], None]) -> None:
            for row in range(positions.shape[0]):

                @pl.when(at[row] >= 0)
                def live(row: int = row) -> None:
                    for i in range(count):
                        source, target = refs[i].at[:, row], refs[2 * count + i].at[:, row]
                        act(pltpu.make_async_copy(source, target, semaphores.at[i]))

        each(lambda copy: copy.start())
        each(lambda copy: copy.wait())

    values = [new[OutputRef(state)] for state in states] + [held[name] for name in names]
    if not build_mode.interpret:
        values = [pltpu.with_memory_space_constraint(value, pltpu.HBM) for value in values]
    space = pl.BlockSpec(memory_space=pltpu.HBM)
    found = pl.pallas_call(
        kernel,
        out_shape=[jax.ShapeDtypeStruct(held[name].shape, held[name].dtype) for name in names],
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), *[space] * 2 * count],
        out_specs=[space] * count,
        scratch_shapes=[pltpu.SemaphoreType.DMA((count,))],
        input_output_aliases={count + 1 + i: i for i in range(count)},
        interpret=build_mode.interpret,
        name="commit",
    )(positions, *values)
    return dict(zip(names, found, strict=True))
