"""A kernel of several collectives in a row, run on virtual cores or compiled for real ones, by a child process.

Run, a case is `ok`, or it is said what is wrong; compiled, the VMEM that the compiler gives each kernel and what its
buffers should take.
"""

from __future__ import annotations

import contextlib
import io
import re
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from attrs import evolve, frozen
from jax.experimental import pallas as pl
from jax.experimental import topologies
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec, use_abstract_mesh

from mks.backends.pallas.aot.compiler import not_kept
from mks.backends.pallas.collectives import collectives, others, sums
from mks.backends.pallas.collectives.peers import Cores, barrier, collective_id
from mks.dsl.collectives.collective import CollectivePlan, Exchanged, Wire
from mks.dsl.collectives.kinds import table
from mks.dsl.targets.targets import padded_bytes

AXES = ("a", "b")
LANES, HEADS = 128, 2


@frozen
class Case:
    """`steps` collectives of one kind over the axes `over`, or all; `mode` is the interpreter's.

    Of what is scattered, the last `beside` of `width` columns come to all. To merge softmaxes, each core has two heads
    of `width` channels.

    `fault` spoils the kernel: one `parity` for all collectives, no wait for `sends` or for `receipts`.
    """

    kind: str
    mesh: tuple[int, ...]
    over: str = ""
    by: str = "direct"
    wire: str = "f32"
    rows: int = 1
    width: int = 64
    beside: int = 0
    steps: int = 3
    mode: str = "eager"
    static: bool = False  # parities known to the compiler, in place of a loop
    fault: str = ""

    @property
    def cores(self) -> Cores:
        """The cores that each collective runs over."""
        mesh = tuple(zip(AXES, self.mesh, strict=False))
        return Cores(mesh, tuple(self.over) or tuple(name for name, _ in mesh))

    @property
    def plan(self) -> CollectivePlan:
        """What it holds and sends."""
        width = HEADS * (self.width + LANES) if self.kind == "softmax_merge" else self.width
        wire = "int32" if self.kind == "argmax" else self.wire
        given = Exchanged(self.cores.count, self.rows, width, Wire(wire), self.beside)
        return table[self.by if self.kind == "sum" else self.kind].plan(given)


def shapes(case: Case) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of a core's parts and its results: f32 and int32 alike."""
    if case.kind == "softmax_merge":
        of_all = (case.steps, case.rows, HEADS * case.cores.count, case.width + LANES)
        return of_all, (case.steps, case.rows, HEADS * case.width)
    width = case.width if case.kind != "argmax" else 1
    result = width * case.cores.count if case.kind == "gather" else width
    if case.kind == "reduce_scatter":
        result = case.plan.buffers[0].shape[-1]
    return (case.steps, case.rows, width), (case.steps, case.rows, result)


def kernel(case: Case, interpreted: bool):
    """The call that exchanges `[steps, rows, width]` parts and their ids."""
    plan, cores = case.plan, case.cores
    everyone = evolve(cores, axes=tuple(name for name, _ in cores.mesh))

    def one(step, parity, part, ids, out, chosen, refs):
        value = part.at[step] if case.kind == "softmax_merge" else part[step]
        pending = collectives.start(plan, cores, refs, parity, value, *([ids[step]] if case.kind == "argmax" else []))
        if case.kind == "argmax":
            out[step], chosen[step] = collectives.finish(pending)
        elif case.kind == "gather":
            out[step] = jnp.concatenate(collectives.finish(pending), axis=-1)
        elif case.kind == "softmax_merge":
            out[step] = jnp.concatenate(collectives.finish(pending, HEADS), axis=-1)
        else:
            out[step] = collectives.finish(pending)

    def body(part, ids, out, chosen, *refs):
        chosen[...] = jnp.zeros(chosen.shape, jnp.int32)
        barrier(everyone)
        if case.static:
            for step in range(case.steps):
                one(step, step & 1, part, ids, out, chosen, refs)
        else:

            def turn(step, _):
                one(step, 0 if case.fault == "parity" else step & 1, part, ids, out, chosen, refs)

            jax.lax.fori_loop(0, case.steps, turn, None)

    _, results = shapes(case)
    mode = pltpu.InterpretParams(dma_execution_mode=case.mode, detect_races=True, uninitialized_memory="nan")
    return pl.pallas_call(
        body,
        out_shape=(jax.ShapeDtypeStruct(results, jnp.float32), jax.ShapeDtypeStruct((*results[:2], 1), jnp.int32)),
        in_specs=[pl.BlockSpec(memory_space=pltpu.VMEM)] * 2,
        out_specs=(pl.BlockSpec(memory_space=pltpu.VMEM),) * 2,
        scratch_shapes=collectives.scratch(plan),
        compiler_params=pltpu.CompilerParams(collective_id=collective_id(everyone, 3), vmem_limit_bytes=16 << 20),
        interpret=mode if interpreted else False,
    )


def sharded(case: Case, mesh: Mesh, interpreted: bool):
    """Over `[cores, …]` arrays."""
    call = kernel(case, interpreted)

    def local(part, ids):
        out, chosen = call(part[0], ids[0])
        return out[None], chosen[None]

    spec = PartitionSpec(mesh.axis_names)
    return jax.shard_map(local, mesh=mesh, in_specs=(spec, spec), out_specs=(spec, spec), check_vma=False)


def parts(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Parts with rounding in every sum, ids with equal values among them."""
    rng = np.random.default_rng(7)
    shape = (int(np.prod(case.mesh)), *shapes(case)[0])
    values = rng.normal(size=shape) * 10.0 ** rng.integers(-3, 3, shape)
    count = shape[0] * case.steps * case.rows
    ids = rng.permutation(1 << 20)[:count].reshape(*shape[:3], 1) + (1 << 30)
    if case.kind == "argmax":
        values = rng.integers(0, 3, shape)
    if case.kind == "softmax_merge":
        # Largest scores, sums of weights and values; but the last core has seen no position.
        values[..., case.width :] = rng.normal(size=(*shape[:-1], 1)) * 30
        values[..., case.width + LANES // 2 :] = rng.uniform(1, 9, (*shape[:-1], 1))
        values[-1] = 0
        values[-1, ..., case.width : case.width + LANES // 2] = -1e30
    return values.astype(np.float32), ids.astype(np.int32)


def wired(value: np.ndarray, wire: str) -> np.ndarray:
    """As it arrives."""
    return value.astype(ml_dtypes.bfloat16).astype(np.float32) if wire == "bf16" else value


def total(terms: np.ndarray) -> np.ndarray:
    """The sum over the first axis, term by term."""
    found = terms[0]
    for term in terms[1:]:
        found = found + term
    return found


def expected(case: Case, values: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What one group of cores must all hold, of the parts of its cores in the order of ranks."""
    none = np.zeros((*shapes(case)[1][:2], 1), np.int32)
    if case.kind == "softmax_merge":
        return merged(values.astype(np.float64), case.width), none
    if case.kind == "argmax":
        best = values.max(0)
        return best, np.where(values == best, ids, np.iinfo(np.int32).max).min(0)
    arrived = wired(values, case.wire)
    if case.kind == "gather":
        return np.concatenate(list(arrived), -1), none
    if case.by == "direct":
        return total(arrived), none
    if case.by == "two_level":
        arrived = wired(arrived[::2] + arrived[1::2], case.wire)
    return wired(total(arrived), case.wire), none


def own(case: Case, best: np.ndarray, rank: int) -> np.ndarray:
    """What a core must hold of it: all, or its columns, zero beyond the last, and those that come to all."""
    if case.kind != "reduce_scatter":
        return best
    chunk, width = shapes(case)[1][-1] - case.beside, case.width - case.beside
    mine = best[..., min(rank * chunk, width) : min((rank + 1) * chunk, width)]
    none = np.zeros((*mine.shape[:-1], chunk - mine.shape[-1]), mine.dtype)
    return np.concatenate([mine, none, best[..., width:]], -1)


def merged(values: np.ndarray, width: int) -> np.ndarray:
    """All heads over all positions, `[steps, rows, heads * width]`, of each core's over its own."""
    largest, total = values[..., width], values[..., width + LANES // 2]
    fade = np.exp(largest - largest.max(0))
    found = (values[..., :width] * fade[..., None]).sum(0) / (total * fade).sum(0)[..., None]
    return found.reshape(*found.shape[:2], -1)


def run(case: Case) -> str:
    """`ok`, or what is wrong: `race`, `semaphores` that are not zero at the end, or other results."""
    values, ids = parts(case)
    count = len(values)
    mesh = Mesh(np.array(jax.devices()[:count]).reshape(case.mesh), AXES[: len(case.mesh)])
    forgotten = {"sends": "sent", "receipts": "received"}.get(case.fault)
    said = io.StringIO()
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.redirect_stdout(said))
            for module in (others, sums) if forgotten else ():
                stack.enter_context(mock.patch.object(module, forgotten))
            out, chosen = map(np.asarray, jax.jit(sharded(case, mesh, True))(values, ids))
    except Exception as error:
        pltpu.reset_tpu_interpret_mode_state()
        return "race" if "race" in str(error).lower() else repr(error)[:500]
    if "Semaphore" in said.getvalue():
        return "semaphores"
    ranks = np.arange(count).reshape(case.mesh)
    groups = ranks.reshape(1, -1) if not case.over else ranks if case.over == AXES[len(case.mesh) - 1] else ranks.T
    for group in groups:
        whole, which = expected(case, values[group], ids[group])
        for rank, core in enumerate(group):
            if case.kind == "softmax_merge":
                columns = HEADS * case.width
                wanted = whole[..., rank * columns : (rank + 1) * columns]
                if not np.abs(out[core] - wanted).max() <= 1e-5 * np.abs(wanted).max():
                    return f"core {core} differs by {np.abs(out[core] - wanted).max()}"
                continue
            best = own(case, whole, rank)
            if out[core].tobytes() != best.tobytes() or (chosen[core] != which).any():
                return (
                    f"core {core} differs by {np.abs(out[core] - best).max()}, ids at {(chosen[core] != which).sum()}"
                )
    return "ok"


def compiled(case: Case, topology: str) -> tuple[int, int]:
    """Bytes of VMEM that the compiler gives the kernel for the topology's devices, and those of its buffers."""
    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    names = AXES[: len(case.mesh)]
    mesh = Mesh(np.array(devices).reshape(case.mesh), names)
    sharding = NamedSharding(mesh, PartitionSpec(names))
    shape = shapes(case)[0]
    given = [
        jax.ShapeDtypeStruct((len(devices), *s), d, sharding=sharding)
        for s, d in ((shape, jnp.float32), ((*shape[:2], 1), jnp.int32))
    ]
    chip = AbstractDevice(device_kind=devices[0].device_kind, num_cores=devices[0].num_cores, platform="tpu")
    whole = AbstractMesh(case.mesh, names, (AxisType.Auto,) * len(names), abstract_device=chip)
    with use_abstract_mesh(whole), not_kept():
        done = (
            jax.jit(lambda *a: sharded(case, mesh, False)(*a))
            .trace(*given)
            .lower(lowering_platforms=("tpu",))
            .compile()
        )
    _, call = done.as_text().split('custom_call_target="tpu_custom_call"')
    used = int(re.search(r'"used_scoped_memory_configs":\[\{"memory_space":"1","offset":"0","size":"(\d+)"', call)[1])
    return used, sum(padded_bytes(need.shape, need.dtype) for need in case.plan.buffers)


def answer(cases: list[dict[str, Any]], topology: str = "") -> list[Any]:
    """What comes of each case, run here or compiled for a topology."""
    made = [Case(**given | {"mesh": tuple(given["mesh"])}) for given in cases]
    return [compiled(case, topology) if topology else run(case) for case in made]
