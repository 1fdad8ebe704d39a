"""Small kernels, compiled for machines that are not attached."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import NamedSharding, PartitionSpec

from mks.backends.pallas.aot.compiler import Compiled, Machine, compile_ahead, machine
from mks.dsl.targets.targets import targets

HBM, SMEM, VMEM = (pl.BlockSpec(memory_space=space) for space in (pltpu.HBM, pltpu.SMEM, pltpu.VMEM))
WHOLE = PartitionSpec()


def described(target: str = "tpu7x", topology: tuple[int, ...] = (1, 1, 1)) -> Machine:
    """A machine; one chip of v7x unless said otherwise."""
    return machine(targets[target], topology)


def shaped(shape, dtype=jnp.float32, on=None, spec=WHOLE):
    """An argument, whole on each device or split; `on` is a mesh, by default of one core of v7x."""
    mesh = described().mesh({"x": 1}) if on is None else on
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))


def local(kernel, out, *arguments, specs=None, scratch=(), limit=None, **options):
    """A `pallas_call` of a kernel on one core, for use inside a function that is compiled."""
    params = pltpu.CompilerParams(vmem_limit_bytes=limit)
    many = isinstance(out, list)
    return pl.pallas_call(
        lambda *refs: kernel(*refs),
        out_shape=out,
        in_specs=specs or [VMEM] * len(arguments),
        out_specs=[HBM] * len(out) if many else options.pop("out_spec", VMEM),
        scratch_shapes=scratch,
        compiler_params=params,
        **options,
    )(*arguments)


def compile_local(function, *arguments, donate=()) -> Compiled:
    """Compile a function for one core of v7x."""
    return compile_ahead(function, arguments, described(), {"x": 1}, donate)


def pinned(array):
    """Keep an operand in HBM."""
    return pltpu.with_memory_space_constraint(array, pltpu.HBM)


def fetch(source, target, semaphore):
    """A transfer, waited for."""
    copy = pltpu.make_async_copy(source, target, semaphore)
    copy.start()
    copy.wait()
