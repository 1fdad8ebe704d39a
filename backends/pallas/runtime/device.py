"""What kernels run on: a host's TPUs, or its CPU, where they are interpreted."""

from __future__ import annotations

from math import prod

import jax
import numpy as np
from attrs import frozen
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import Mesh

from ....dsl.schedule.ir import Schedule
from ..emit.call import BuildMode


class TooFewDevices(Exception):
    """A schedule's mesh has more cores than there are devices; the text says what to do."""


@frozen
class Machine:
    """Devices in a schedule's mesh, and how kernels are built for them."""

    mesh: Mesh
    build_mode: BuildMode

    @property
    def interpreted(self) -> bool:
        """Whether kernels are interpreted, which is for checking them."""
        return bool(self.build_mode.interpret)


def attached() -> tuple[jax.Device, ...]:
    """This host's TPUs."""
    return tuple(jax.devices()) if jax.default_backend() == "tpu" else ()


def machine(schedule: Schedule) -> Machine:
    """This host's first devices as a schedule's mesh. Raises `TooFewDevices`."""
    native = attached()
    devices = native or tuple(jax.devices("cpu"))
    axes = schedule.axes
    cores = prod(axes.values())
    if cores > len(devices):
        here = f"{len(devices)} {'core' if native else 'CPU device'}{'s' * (len(devices) > 1)}"
        ask = "" if native else f"; set XLA_FLAGS=--xla_force_host_platform_device_count={cores} to have virtual ones"
        raise TooFewDevices(f"schedule `{schedule.name}` is for {cores} cores, and this host has {here}{ask}")
    mesh = Mesh(np.array(devices[:cores], dtype=object).reshape(tuple(axes.values())), tuple(axes))
    if native:
        return Machine(mesh, BuildMode(vmem=int(schedule.target.memory.vmem.value)))
    return Machine(mesh, BuildMode(interpret=pltpu.InterpretParams()))
