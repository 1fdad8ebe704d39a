"""A step over all cores: every array has a leading axis of cores, and each core works on its own share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from ....dsl.program import ir as p
from ..layout.resharding import of_value
from .call import Arrays, BuildMode, lying, step
from .signature import labelled, operands, signature, states

# What a core reads, in the shapes of `Signature.operands`; several threads ask at a time.
type Operand = Callable[[p.ArrayRef, int], np.ndarray[Any, Any]]
type Step = Callable[[jax.Array, jax.Array, Arrays, Arrays], tuple[jax.Array, jax.Array, dict[str, jax.Array]]]


def by_core(program: p.Program, mesh: Mesh) -> NamedSharding:
    """How an array with a leading axis of cores lies."""
    return NamedSharding(mesh, P(tuple(program.schedule.axes)))


def whole(
    program: p.Program, of_core: Mapping[str, jax.ShapeDtypeStruct], mesh: Mesh
) -> dict[str, jax.ShapeDtypeStruct]:
    """All cores' arrays, given one's."""
    cores = mesh.size
    return {
        name: jax.ShapeDtypeStruct((cores, *a.shape), a.dtype, sharding=by_core(program, mesh))
        for name, a in of_core.items()
    }


def arguments(program: p.Program, mesh: Mesh) -> tuple[Any, ...]:
    """What a step takes: tokens and positions int32 `[rows]`, weights, states and caches.

    For consecutive tokens also the number of the one, of the pass before, after which the sequence goes on.
    """
    everywhere = NamedSharding(mesh, P())
    scalars = jax.ShapeDtypeStruct((program.rows,), jnp.int32, sharding=everywhere)
    kept = (jax.ShapeDtypeStruct((), jnp.int32, sharding=everywhere),) if program.consecutive else ()
    return scalars, scalars, whole(program, operands(program), mesh), whole(program, states(program), mesh), *kept


def layouts(program: p.Program, mesh: Mesh) -> dict[str, Format]:
    """How all cores' states and caches lie: as the kernel reads them.

    Left to itself XLA would put other axes than the last two into tiles where these are small, and copy every time.
    """
    held = whole(program, states(program), mesh)
    return {name: Format(Layout(major_to_minor=tuple(range(a.ndim))), a.sharding) for name, a in held.items()}


def placed(program: p.Program, mesh: Mesh, operand: Operand) -> dict[str, jax.Array]:
    """What all cores read, each one's on its own device; every operand is asked for once, each core's by a thread."""
    devices, found = list(mesh.devices.flat), dict[p.ArrayRef, jax.Array]()
    wanted = signature(program).operands

    def put(name: p.ArrayRef, core: int) -> jax.Array:
        array, like = operand(name, core), wanted[name]
        if array.shape != like.shape:
            raise ValueError(f"`{name}` of core {core} is {list(array.shape)}; the kernel reads {list(like.shape)}")
        return jax.device_put(array[None], devices[core])

    with ThreadPoolExecutor(min(len(devices), os.cpu_count() or 1)) as pool:
        for name, like in wanted.items():
            parts = list(pool.map(partial(put, name), range(len(devices))))
            whole = (len(parts), *like.shape)
            found[name] = jax.make_array_from_single_device_arrays(whole, by_core(program, mesh), parts)
    return labelled(found)


def empty(program: p.Program, mesh: Mesh) -> dict[str, jax.Array]:
    """All cores' states and caches, zero."""
    kept = whole(program, states(program), mesh)
    zeros = jax.jit(
        lambda: {name: jnp.zeros(a.shape, a.dtype) for name, a in kept.items()}, out_shardings=layouts(program, mesh)
    )
    return zeros()


def jitted(program: p.Program, build_mode: BuildMode, mesh: Mesh) -> Any:
    """`build` under `jax.jit`: states and caches are donated, and lie as the kernel reads them."""
    held = layouts(program, mesh)
    shardings = [jax.tree.map(lambda array: array.sharding, each) for each in arguments(program, mesh)]
    step = build(program, build_mode, mesh)
    return jax.jit(
        lambda *values: step(*values),
        donate_argnums=3,
        in_shardings=(*shardings[:3], held, *shardings[4:]),
        out_shardings=(None, None, held),
    )


def build(program: p.Program, build_mode: BuildMode, mesh: Mesh) -> Step:
    """The step as a function of whole arrays: ids int32 `[rows]`, logits f32 `[rows, vocab]`, states after it."""
    cut = P(tuple(program.schedule.axes))
    types = program.phase.step.types
    vocab, share = (f(types["logits"].shape[0]) for f in (program.instance.length, program.shares.length))
    sharing = of_value(program.shares, types["logits"].shape)

    def on_core(
        tokens: jax.Array, positions: jax.Array, weights: Arrays, held: Arrays, kept: jax.Array
    ) -> tuple[jax.Array, jax.Array, dict[str, jax.Array]]:
        mine, own = ({name: a[0] for name, a in arrays.items()} for arrays in (weights, held))
        next_ids, logits, after = step(program, build_mode, tokens, positions, mine, own, kept)
        return next_ids, logits[None, :, :share], {name: lying(a[None], build_mode) for name, a in after.items()}

    mapped = jax.shard_map(
        on_core, mesh=mesh, in_specs=(P(), P(), cut, cut, P()), out_specs=(P(), cut, cut), check_vma=False
    )

    def run(
        tokens: jax.Array, positions: jax.Array, weights: Arrays, held: Arrays, kept: jax.Array | int = 0
    ) -> tuple[jax.Array, jax.Array, dict[str, jax.Array]]:
        next_ids, logits, after = mapped(tokens, positions, weights, held, jnp.asarray(kept, jnp.int32))
        if share == vocab:
            return next_ids, logits[0], after
        return next_ids, sharing.joined(logits), after

    return run
