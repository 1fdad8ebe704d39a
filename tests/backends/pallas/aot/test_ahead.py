"""Compiling for machines that are not attached."""

import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import PartitionSpec

from mks.backends.pallas.aot import compiler
from mks.backends.pallas.cycles.bundle_cache import versions
from mks.dsl.diagnostics import MksError
from mks.dsl.targets.targets import targets

pytest.importorskip("libtpu")
from helpers import children
from helpers.ahead import VMEM, compile_local, described, local, shaped

TESTS = Path(__file__).parents[3]
BLOCK = jax.ShapeDtypeStruct((8, 128), jnp.float32)


def double(x, out):
    """A kernel without communication."""
    out[...] = x[...] * 2


def pass_on(count):
    """A kernel in which each core adds what its neighbour has."""

    def kernel(x, out, got, sent, received):
        copy = pltpu.make_async_remote_copy(
            x, got, sent, received, device_id=(lax.rem(lax.axis_index("x") + 1, count),)
        )
        copy.start()
        copy.wait()
        out[...] = x[...] + got[...]

    scratch = [pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA, pltpu.SemaphoreType.DMA]

    def function(x):
        split = PartitionSpec("x")
        call = pl.pallas_call(kernel, out_shape=BLOCK, in_specs=[VMEM], out_specs=VMEM, scratch_shapes=scratch)
        return jax.shard_map(call, in_specs=split, out_specs=split, check_vma=False)(x)

    return function


@pytest.mark.parametrize(
    ("target", "topology", "cores"),
    [
        ("v5e", (1, 1), 1),
        ("v5e", (2, 2), 4),
        ("v6e", (1, 1), 1),
        ("v6e", (2, 4), 8),
        ("v5p", (1, 1, 1), 1),
        ("v5p", (2, 2, 1), 4),
        ("tpu7x", (1, 1, 1), 2),
        ("tpu7x", (2, 2, 1), 8),
        ("tpu7x", (2, 2, 4), 32),
    ],
)
def test_machines(target, topology, cores):
    """A described machine has the cores that the targets' table says, and compiles on one of them and on all."""
    machine = described(target, topology)

    assert len(machine.devices) == targets[target].devices(topology) == cores
    for count in {1, cores}:
        axes = {"x": count}
        x = shaped((8 * count, 128), on=machine.mesh(axes), spec=PartitionSpec("x"))
        function = pass_on(count) if count > 1 else lambda x: local(double, BLOCK, x)
        compiled = compiler.compile_ahead(function, [x], machine, axes)
        assert f"num_partitions={count}" in compiled.hlo or count == 1
        assert ('"has_communication":true' in compiled.hlo) == (count > 1)


def test_two_axes():
    """A mesh may have two axes, and fewer devices than the machine."""
    machine = described("tpu7x", (2, 2, 1))
    axes = {"a": 2, "b": 2}
    split = PartitionSpec("a", "b")
    x = shaped((16, 256), on=machine.mesh(axes), spec=split)

    def function(x):
        call = pl.pallas_call(double, out_shape=BLOCK)
        return jax.shard_map(call, in_specs=split, out_specs=split, check_vma=False)(x)

    assert "num_partitions=4" in compiler.compile_ahead(function, [x], machine, axes).hlo


def test_what_is_measured():
    """Times and bytes are the program's own: a donated argument is aliased, nothing is temporary."""
    big = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
    compiled = compile_local(
        lambda x: local(double, big, x, input_output_aliases={0: 0}), shaped(big.shape), donate=(0,)
    )

    assert 0 < compiled.lower_s < 60
    assert 0 < compiled.compile_s < 60
    memory = compiled.memory
    assert memory.arguments == memory.outputs == memory.aliased == 4 << 20
    assert memory.temporary == 0
    assert memory.total == (4 << 20) + memory.code
    assert memory.code > 0


CACHED = """
import sys, jax
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
from helpers.ahead import compile_local, local, shaped
from helpers.mosaic import compile_for
import jax.numpy as jnp
def double(x, out):
    out[...] = x[...] * 2
compile_local(lambda x: local(double, jax.ShapeDtypeStruct((8, 128), jnp.float32), x), shaped((8, 128)))
compile_for("v5e", lambda x: x * 2, [jax.ShapeDtypeStruct((8, 128), jnp.float32)])
print(jax.config.jax_persistent_cache_min_compile_time_secs)
def other(x):
    return x * 2
jax.jit(other)(1.0)
"""


def test_kept_programs(tmp_path):
    """JAX's cache of compiled programs, which could not be read back, gets nothing; other programs are kept."""
    run = children.run(
        [sys.executable, "-W", "error", "-c", CACHED, str(tmp_path)],
        cwd=TESTS,
        capture_output=True,
        text=True,
        seconds=60,
    )

    assert run.stdout.strip() == "0.0", run.stderr
    assert [path.name.partition("-")[0] for path in tmp_path.glob("*-cache")] == ["jit_other"]


def test_unknown_topology():
    """A topology that the compiler does not describe is an error with a code."""
    with pytest.raises(MksError) as caught:
        described("tpu7x", (3, 1, 1))

    [found] = caught.value.diagnostics
    assert found.code == "E502"
    assert "`tpu7x:3x1x1`" in found.message


def test_without_libtpu(monkeypatch):
    """Without the compiler the message says what to install."""

    def absent(**kwargs):
        raise RuntimeError("JAX TPU support not installed; cannot generate TPU topology. See ...")

    monkeypatch.setattr(compiler.topologies, "get_topology_desc", absent)
    with pytest.raises(MksError) as caught:
        described("v5p", (4, 4, 4))

    [found] = caught.value.diagnostics
    assert found.code == "E501"
    assert "mks[tpu]" in found.helps[0]


WITHOUT = """
import sys
sys.modules["libtpu"] = None
from helpers.ahead import described
from mks.dsl.diagnostics import MksError
try:
    described()
except MksError as e:
    print(e.diagnostics[0].code)
"""


def test_without_the_package():
    """JAX says that there is no compiler in the words that are looked for."""
    environment = {name: value for name, value in os.environ.items() if name != "TPU_LIBRARY_PATH"}
    run = children.run(
        [sys.executable, "-c", WITHOUT], cwd=TESTS, env=environment, capture_output=True, text=True, seconds=60
    )

    assert run.stdout.strip() == "E501", run.stderr


def test_saved_programs(tmp_path):
    """What is written holds the program and both trees; loading it needs the devices."""
    path = tmp_path / "step.bin"

    def function(held):
        return {"new": local(double, BLOCK, held["old"])}, held["count"] + 1

    compiled = compile_local(function, {"old": shaped((8, 128)), "count": shaped((), jnp.int32)})
    written = compiler.save(compiled, path)

    saved = compiler.read(path)
    assert path.stat().st_size == written > len(saved.program) > 1000
    assert saved.arguments == jax.tree.structure((({"old": 0, "count": 0},), {}))
    assert saved.shapes == {"[0][0]['count']": "int32[]", "[0][0]['old']": "float32[8, 128]"}
    assert saved.results == jax.tree.structure(({"new": 0}, 0))
    assert list(tmp_path.iterdir()) == [path]


def test_versions():
    """A compiled program's versions are known."""
    assert set(versions()) == {"jax", "jaxlib", "libtpu"}
    assert all(text[0].isdigit() for text in versions().values())
