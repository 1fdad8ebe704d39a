"""Compiling for TPUs that are not attached."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
from attrs import frozen
from jax.experimental import serialize_executable, topologies
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, Mesh

from ....dsl.diagnostics import Diagnostic, MksError
from ....dsl.schedule.ir import Schedule
from ....dsl.targets.target import Target

# The compiler asks the cloud what it runs on, and keeps other processes out, unless it is told not to.
_ALONE = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_MIN_LOG_LEVEL": "3",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_WORKER_HOSTNAMES": "localhost",
}


@frozen
class Machine:
    """A described machine: the devices of a target's topology, in the compiler's order; none of them is attached."""

    target: Target
    topology: tuple[int, ...]
    devices: tuple[Any, ...]

    def mesh(self, axes: Mapping[str, int]) -> Mesh:
        """The first devices as a mesh, for the shardings of arguments; fewer than there are is allowed."""
        count = int(np.prod(tuple(axes.values()), dtype=np.int64))
        assert count <= len(self.devices), f"{count} devices of {len(self.devices)}"
        grid = np.array(self.devices[:count], dtype=object).reshape(tuple(axes.values()))
        return Mesh(grid, tuple(axes), axis_types=(AxisType.Auto,) * len(axes))

    def abstract_mesh(self, axes: Mapping[str, int]) -> AbstractMesh:
        """The same mesh as lowering needs it: it says for what chip kernels are lowered."""
        device = AbstractDevice(
            device_kind=self.devices[0].device_kind, num_cores=self.devices[0].num_cores, platform="tpu"
        )
        kinds = (AxisType.Auto,) * len(axes)
        return AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=kinds, abstract_device=device)


@frozen
class Memory:
    """Bytes of HBM on one device, as the compiler plans them."""

    arguments: int
    outputs: int
    aliased: int
    temporary: int
    code: int

    @property
    def total(self) -> int:
        """What a call needs: arguments, the outputs that are not arguments, temporaries and the program."""
        return self.arguments + self.outputs - self.aliased + self.temporary + self.code


@frozen
class Compiled:
    """A compiled program; `hlo` is its text after all passes, the times are in seconds of wall time."""

    executable: jax.stages.Compiled
    hlo: str
    lower_s: float
    compile_s: float
    memory: Memory


@frozen
class Saved:
    """A program as it is kept: its bytes, the trees of its arguments and results, and as `shapes` of its arguments."""

    program: bytes
    arguments: jax.tree_util.PyTreeDef
    results: jax.tree_util.PyTreeDef
    shapes: dict[str, str]


def machine(target: Target, topology: tuple[int, ...]) -> Machine:
    """Describe the machine of a schedule.

    Raises MksError: E501 without libtpu, E502 for a topology that the compiler does not know.
    """
    name = f"{target.compiler_name or target.name}:{'x'.join(map(str, topology))}"
    try:
        return Machine(target, topology, _devices(name))
    except RuntimeError as e:
        raise MksError([_refusal(name, e)]) from e


def meshed(schedule: Schedule) -> tuple[Machine, Mesh]:
    """The machine of a schedule and its mesh there. Raises `MksError` as `machine` does."""
    here = machine(schedule.target, schedule.topology)
    return here, here.mesh(schedule.axes)


@cache  # devices of two descriptions differ, and a program must not mix them
def _devices(name: str) -> tuple[Any, ...]:
    _prepare()
    return tuple(topologies.get_topology_desc(platform="tpu", topology_name=name).devices)


def _prepare() -> None:
    """Set what libtpu reads when it is loaded; later it is too late, and then nothing changes."""
    if os.environ.get("TPU_SKIP_MDS_QUERY") == "1":  # JAX sets it on a host that has no TPU
        for name, value in _ALONE.items():
            os.environ.setdefault(name, value)


def _refusal(name: str, error: RuntimeError) -> Diagnostic:
    first_line = str(error).partition("\n")[0]
    if "not installed" in first_line:
        return Diagnostic(
            "E501",
            "compiling for a TPU needs libtpu, which is not installed",
            helps=("`pip install 'mks[tpu]'` installs it (Linux, x86-64)",),
        )
    return Diagnostic(
        "E502",
        f"the compiler describes no machine `{name}`",
        notes=(f"libtpu: {first_line}",),
        helps=("lengths of a topology are 1, 2 or multiples of 2",),
    )


def compile_ahead(
    function: Callable[..., Any],
    arguments: Iterable[Any],
    machine: Machine,
    axes: Mapping[str, int],
    donate: tuple[int, ...] = (),
) -> Compiled:
    """Compile a function for a machine, without running anything.

    `arguments` are trees of `jax.ShapeDtypeStruct`; each leaf needs a `NamedSharding` over `machine.mesh(axes)`.
    `jax.shard_map` inside the function needs no mesh: it is this one. `donate` are positions of arguments. A function
    that `jax.jit` made, afresh for this machine, is taken as it is.
    Errors of the compiler come as they are: see `failures.explain_failure`.
    """
    arguments = tuple(arguments)
    start = time.perf_counter()
    # A fresh function each time: JAX would reuse what it traced for another mesh.
    jitted = hasattr(function, "trace")
    fresh: Any = function if jitted else jax.jit(lambda *given: function(*given), donate_argnums=donate)
    with jax.sharding.use_abstract_mesh(machine.abstract_mesh(axes)):
        lowered = fresh.trace(*arguments).lower(lowering_platforms=("tpu",))
        between = time.perf_counter()
        with not_kept():
            executable = lowered.compile()
    end = time.perf_counter()
    return Compiled(executable, executable.as_text() or "", between - start, end - between, _memory(executable))


@contextmanager
def not_kept() -> Iterator[None]:
    """Keep JAX's cache of compiled programs out of it: it would write this one, and cannot read it back."""
    name = "jax_persistent_cache_min_compile_time_secs"
    before = getattr(jax.config, name)
    jax.config.update(name, float("inf"))
    try:
        yield
    finally:
        jax.config.update(name, before)


def _memory(executable: jax.stages.Compiled) -> Memory:
    analysis = executable.memory_analysis()
    assert analysis is not None
    return Memory(
        analysis.argument_size_in_bytes,
        analysis.output_size_in_bytes,
        analysis.alias_size_in_bytes,
        analysis.temp_size_in_bytes,
        analysis.generated_code_size_in_bytes,
    )


def save(compiled: Compiled, path: Path) -> int:
    """Write a program that loads without compiling; how many bytes."""
    program, arguments, results = serialize_executable.serialize(compiled.executable)
    content = pickle.dumps((program, arguments, results, shapes(compiled.executable.args_info)), protocol=5)
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    part.replace(path)
    return len(content)


def shapes(tree: Any) -> dict[str, str]:
    """For each leaf's place in a tree its type and shape, in words."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(place): f"{leaf.dtype}{list(leaf.shape)}" for place, leaf in leaves}


def read(path: Path) -> Saved:
    """What `save` wrote. Only for files that can be trusted: they are pickles."""
    return Saved(*pickle.loads(path.read_bytes()))


def load(saved: Saved, devices: Sequence[jax.Device]) -> jax.stages.Compiled:
    """The program, ready to be called; `devices` are attached, as many and of the kind that it is for."""
    return serialize_executable.deserialize_and_load(
        saved.program, saved.arguments, saved.results, execution_devices=devices
    )
