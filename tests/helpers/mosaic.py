"""Compile small kernels for TPUs that are not attached."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from unittest import mock

import jax
from jax.experimental import topologies
from jax.sharding import AbstractDevice, AbstractMesh, SingleDeviceSharding, use_abstract_mesh

from mks.backends.pallas.aot.compiler import not_kept

TOPOLOGIES = {"v5e": "v5e:2x2", "v6e": "v6e:2x2", "v5p": "v5p:2x2x1", "tpu7x": "tpu7x:2x2x1"}


def compile_for(target: str, kernel: Callable, arguments: Sequence[jax.ShapeDtypeStruct]) -> str:
    """The compiled program's text, or the compiler's exception."""
    with mock.patch.dict(os.environ, TPU_SKIP_MDS_QUERY="1", ALLOW_MULTIPLE_LIBTPU_LOAD="1"):
        device = topologies.get_topology_desc(platform="tpu", topology_name=TOPOLOGIES[target]).devices[0]
    kind = AbstractDevice(device_kind=device.device_kind, num_cores=device.num_cores, platform="tpu")
    placed = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=SingleDeviceSharding(device)) for a in arguments]
    with use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=kind)), not_kept():
        traced = jax.jit(lambda *a: kernel(*a)).trace(*placed)
        return traced.lower(lowering_platforms=("tpu",)).compile().as_text()
