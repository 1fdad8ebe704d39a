"""Operands of kernels as weights again: the inverse of packing and of sharing out, bit for bit."""

from __future__ import annotations

from functools import cache, partial

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from attrs import evolve
from helpers.definitions import FOLDER
from helpers.oracles import DATA

from mks.backends.pallas.layout import resharding, unpack
from mks.backends.pallas.runtime.packed_weights import packed_weights
from mks.backends.pallas.runtime.row_state import rows
from mks.dsl.frontend import load_definition
from mks.dsl.program.layout.tiling import tiling
from mks.dsl.program.lower.lower import lower
from mks.dsl.schedule.ir import Schedule, Shard, Split, bare
from mks.dsl.schedule.shares import Shares
from mks.dsl.targets.targets import targets
from mks.models.checkpoint.load import load
from mks.models.checkpoint.read import read
from mks.models.packing import operands, tapes
from mks.models.packing.shards import share

DTYPES = {16: np.dtype(ml_dtypes.bfloat16), 32: np.dtype(np.float32)}


@pytest.mark.parametrize("bits", DTYPES)
@pytest.mark.parametrize("shape", [(512, 64), (1536, 512), (1000, 96), (130, 40), (300, 72), (48, 8), (2048, 3000)])
def test_matrices(shape: tuple[int, int], bits: int) -> None:
    """What packing made of a matrix of any shape is that matrix again, padding aside; leading axes are kept."""
    random = np.random.default_rng(sum(shape))
    matrix = random.standard_normal(shape).astype(DTYPES[bits])
    tiles = tiling(*shape, bits)
    packed = tapes.pack(matrix, tiles)
    found = jax.jit(unpack.matrix, static_argnums=(1, 2))(jnp.stack([packed, packed[::-1]]), tiles, DTYPES[bits])
    assert found.shape == (2, tiles.outputs, tiles.inputs)
    np.testing.assert_array_equal(found[0], tapes.unpack(packed, tiles, DTYPES[bits]))
    np.testing.assert_array_equal(found[0, : shape[0], : shape[1]], matrix)
    assert not np.asarray(found[0, shape[0] :], np.float32).any()


@cache
def binding(name: str, definition: str, working: str):
    found = load_definition(FOLDER / f"{definition}.mks")
    made, said = load(found.models[found.main[0]], DATA / name, adopt=True, working=working)
    assert made is not None, said
    return made


@pytest.mark.parametrize("working", ["f32", "bf16"])
def test_weights(working: str) -> None:
    """Every weight of a layer, out of tapes, vectors and tables, is the checkpoint's."""
    bound = binding("qwen38_tp8", "qwen38", working)
    program = lower(bare(bound.instance.model, targets["v5e"], 256), bound.instance, 1)
    packed = operands.packed(program, partial(read, bound), 0)
    weights = packed_weights(program, {name: jnp.asarray(array)[None] for name, array in packed.items()})
    for name, place in weights.slices.items():
        every = place.layers or (0,)
        for layer in (every[0], every[-1]):
            right = read(bound, name, None if place.layers is None else layer)
            found = jax.jit(weights.get, static_argnums=(0, 1))(name, every, layer)
            assert found.dtype == right.dtype, name
            np.testing.assert_array_equal(found, right, name)
    table, wanted = read(bound, "embed"), jnp.asarray([[3, 0], [511, 600]])
    np.testing.assert_array_equal(weights.row("embed", (), 0, 3), table[3])
    np.testing.assert_array_equal(weights.rows("embed", (), 0, wanted), table[[[3, 0], [511, 511]]])
    np.testing.assert_array_equal(weights.rows("mlp.up", (5,), 5, wanted[0]), read(bound, "mlp.up", 5)[[3, 0]])


def schedules(bound) -> dict[str, Schedule]:
    """Ways to share out a model, by what is special about them."""
    model = bound.instance.model
    one = bare(model, targets["v5e"], 256)

    def cut(mesh: dict[str, int], **sizes: tuple[str, ...]) -> Schedule:
        shards = {
            name: Shard(name, tuple(a for a in axes if a != "repeat"), "repeat" in axes, model.span)
            for name, axes in sizes.items()
        }
        return evolve(one, mesh=tuple(mesh.items()), shards=shards)

    tp = {"q_heads": ("tp",), "k_heads": ("tp",), "v_heads": ("tp",), "ffn": ("tp",), "vocab": ("tp",)}
    return {
        "even": cut({"tp": 2}, **tp, kv_heads=("tp",)),
        "padded": cut({"tp": 3}, **tp, kv_heads=("tp",)),
        "empty shares": cut({"tp": 16}, **tp, kv_heads=("tp",)),
        "repeated": cut({"tp": 8}, **tp, kv_heads=("tp", "repeat")),
        "two axes": cut({"ep": 2, "tp": 2}, ffn=("ep", "tp"), v_heads=("tp",), vocab=("ep",)),
        "split": evolve(
            cut({"ep": 2, "tp": 3}, ffn=("tp",)),
            splits={
                "delta.wz": Split("delta.wz", ("ep", "tp"), model.span),
                "delta.wq": Split("delta.wq", ("tp",), model.span),
            },
        ),
    }


@pytest.mark.parametrize("kind", ["even", "padded", "empty shares", "repeated", "two axes", "split"])
def test_sharing(kind: str) -> None:
    """All cores' shares of every weight are joined to the whole, and the whole is cut into the same shares."""
    bound = binding("qwen38_tp8", "qwen38", "f32")
    schedule = schedules(bound)[kind]
    shares, cores = Shares(schedule, bound.instance), int(np.prod([n for _, n in schedule.mesh]))
    shared = 0
    for name, weight in bound.instance.model.weights.items():
        layers = bound.instance.owner_layers(weight.part)
        whole = read(bound, name, layers and layers[-1])
        parts = np.stack([share(whole, weight, shares, core) for core in range(cores)])
        how = resharding.of_weight(shares, weight)
        shared += any(how.cuts)
        np.testing.assert_array_equal(how.joined(jnp.asarray(parts)), whole, name)
        np.testing.assert_array_equal(how.cut(jnp.asarray(whole)), parts, name)
    assert shared >= 3


@pytest.mark.parametrize("kind", ["even", "repeated"])
def test_rows(kind: str) -> None:
    """A row of all cores' states and caches comes to the reference and back, bit for bit; no other changes."""
    bound = binding("qwen38_tp8", "qwen38", "f32")
    program = lower(schedules(bound)[kind], bound.instance, 3)
    layout = rows(program, 8)
    random, cores = np.random.default_rng(1), schedules(bound)[kind].ways(("tp",))
    given = {
        key: jnp.asarray(random.standard_normal(value.shape, np.float32)) for key, value in layout.room.empty().items()
    }
    empty = {
        a.name.label: jnp.zeros((cores, *a.shape)) for a in program.arrays.values() if a.kind in ("state", "cache")
    }
    held = layout.write(empty, jnp.int32(1), given, {})
    for name, array in held.items():
        assert array.shape == empty[name].shape
        assert np.asarray(array[:, :, 1]).any()
        assert not np.asarray(array[:, :, ::2]).any()
    for key, value in layout.read(held, jnp.int32(1)).items():
        np.testing.assert_array_equal(value, given[key], key)
