"""Products with experts as they are stored, against the same ones with decoded matrices; compiled for every TPU."""

from __future__ import annotations

from importlib import metadata
from math import gcd

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from helpers.experts import expert, laid_out
from helpers.mosaic import TOPOLOGIES, compile_for
from helpers.tiers import thorough_but
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from mks.backends.pallas.ops.expert_dot import expert_dot
from mks.dsl.program.layout.expert_layout import ExpertLayout, ExpertProduct
from mks.models.checkpoint.codecs import E2M1
from mks.models.checkpoint.read import Quantised
from mks.models.packing.experts import pack_expert

DTYPES = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16)}
TINY, CUT, REAL = (64, 64), (8, 64), (384, 3584)  # a share of the expert's width, and of what it reads


def drawn(outputs: int, inputs: int, seed: int) -> tuple[Quantised, np.ndarray]:
    """All codes with scales from 2 ** -12 to 4, and the same decoded, f64."""
    draw, group = np.random.default_rng(seed), gcd(32, inputs)
    codes = draw.integers(0, 256, (outputs, inputs // 2), np.uint8)
    scales = draw.integers(115, 130, (outputs, inputs // group), np.uint8)
    values = E2M1[np.stack([codes & 15, codes >> 4], axis=-1)].reshape(outputs, inputs).astype(np.float64)
    return Quantised(codes, scales), values * np.repeat(np.ldexp(1.0, scales.astype(int) - 127), group, axis=1)


def drawn_blocks(outputs: int, inputs: int, product: ExpertProduct, seed: int) -> tuple[Quantised, np.ndarray]:
    """All e4m3 numbers, subnormal ones too, with scales as above, and the same decoded, f64."""
    draw = np.random.default_rng(seed)
    codes = draw.integers(0, 0x7F, (outputs, inputs), np.uint8) | draw.integers(0, 2, (outputs, inputs), np.uint8) << 7
    scales = draw.integers(115, 130, (outputs, product.groups), np.uint8)
    spread = np.repeat(np.ldexp(1.0, scales.astype(int) - 127), product.group, axis=1)[:, :inputs]
    return Quantised(codes, scales), codes.view(ml_dtypes.float8_e4m3fn).astype(np.float64) * spread


def multiplied(
    operands: list[tuple[str, np.ndarray]], rows: np.ndarray, layout: ExpertLayout, float4: bool = True
) -> list[np.ndarray]:
    """Some operands of products, in the interpreter, all in one kernel and from the second of two slots."""

    def kernel(slots: jax.Array, *refs: jax.Array) -> None:
        ins, outs = refs[: len(operands)], refs[len(operands) :]
        for (which, _), x, out in zip(operands, ins, outs, strict=True):
            out[...] = expert_dot(x[...], slots.at[1], layout, which, float4)

    shapes = [jax.ShapeDtypeStruct((len(x), layout[which].tiling.outputs), jnp.float32) for which, x in operands]
    call = pl.pallas_call(kernel, out_shape=shapes, interpret=pltpu.InterpretParams())
    return [np.asarray(y) for y in call(np.stack([np.full_like(rows, 0x7F7F7F7F), rows]), *[x for _, x in operands])]


def close(found: np.ndarray, x: np.ndarray, matrix: np.ndarray) -> None:
    """Exact but for rounding of f32 sums; what only pads is zero."""
    wide = x.astype(np.float64)
    allowed = np.abs(wide) @ np.abs(matrix).T

    outputs = len(matrix)
    assert (np.abs(found[:, :outputs] - wide @ matrix.T) <= 1e-6 * allowed).all()
    assert not found[:, outputs:].any()


@pytest.mark.parametrize("size", thorough_but([(96, 512)], [TINY, CUT, (96, 512), REAL], single=True), ids=str)
@pytest.mark.parametrize(("working", "float4"), [("f32", True), ("bf16", True), ("bf16", False)])
def test_products_are_those_of_decoded_matrices(size: tuple[int, int], working: str, float4: bool) -> None:
    """Within 1e-6 for one row and several, by either way of unpacking; padded inputs and outputs count for nothing."""
    layout = expert(*size, "mxfp4")
    width, latent = size
    made = [drawn(width, latent, 1), drawn(width, latent, 2), drawn(latent, width, 3)]
    matrices = {"gate+up": np.concatenate([made[0][1], made[1][1]]), "down": made[2][1]}
    rows = pack_expert([one for one, _ in made], layout)

    draw, operands = np.random.default_rng(0), []
    for b in (1, 3, 8) if size == TINY else (2,):
        for which, matrix in matrices.items():
            operands.append((which, draw.normal(size=(b, matrix.shape[1])).astype(DTYPES[working])))
    for (which, x), y in zip(operands, multiplied(operands, rows, layout, float4), strict=True):
        close(y, x, matrices[which])


@pytest.mark.parametrize(
    "size", thorough_but([(96, 512)], [TINY, CUT, (96, 512), (300, 608), REAL], single=True), ids=str
)
@pytest.mark.parametrize("working", ["f32", "bf16"])
def test_products_with_blocks(size: tuple[int, int], working: str) -> None:
    """Eight-bit numbers with a scale a block; blocks at the end of a share, or of a piece of it, are shorter."""
    layout = expert(*size, "fp8")
    width, latent = size
    made = [drawn_blocks(width, latent, layout["gate+up"], seed) for seed in (1, 2)]
    made.append(drawn_blocks(latent, width, layout["down"], 3))
    matrices = {"gate+up": np.concatenate([made[0][1], made[1][1]]), "down": made[2][1]}
    rows = pack_expert([one for one, _ in made], layout)

    draw = np.random.default_rng(0)
    operands = [
        (which, draw.normal(size=(b, matrix.shape[1])).astype(DTYPES[working]))
        for b in ((1, 3, 8) if size == TINY else (2,))
        for which, matrix in matrices.items()
    ]
    for (which, x), y in zip(operands, multiplied(operands, rows, layout), strict=True):
        close(y, x, matrices[which])


@pytest.mark.parametrize("codec", ["bf16", "f32"])
def test_products_with_plain_numbers(codec: str) -> None:
    """Experts that are not quantised, in the working type."""
    layout, draw = expert(40, 72, codec), np.random.default_rng(0)
    parts = [draw.normal(size=shape).astype(DTYPES[codec]) for shape in [(40, 72), (40, 72), (72, 40)]]
    rows = pack_expert(parts, layout)

    matrices = {"gate+up": np.concatenate(parts[:2]), "down": parts[2]}
    operands = [(name, draw.normal(size=(3, m.shape[1])).astype(DTYPES[codec])) for name, m in matrices.items()]
    for (which, x), y in zip(operands, multiplied(operands, rows, layout), strict=True):
        close(y, x, matrices[which].astype(np.float64))


def test_a_padded_operand_may_hold_anything_finite() -> None:
    """What stands where a tiling pads the inputs is multiplied by zeros."""
    layout = expert(8, 64, "mxfp4")
    made = [drawn(8, 64, 1), drawn(8, 64, 2), drawn(64, 8, 3)]
    rows = pack_expert([one for one, _ in made], layout)
    x = np.random.default_rng(0).normal(size=(2, layout["down"].tiling.inputs)).astype(DTYPES["bf16"])

    [found] = multiplied([("down", x)], rows, layout)

    assert x.shape[1] > 8
    close(found, x[:, :8], made[2][1])


@pytest.mark.parametrize("codec", thorough_but(("fp8",), ("mxfp4", "fp8")))
def test_a_row_does_not_depend_on_the_others(codec: str) -> None:
    """A row's bits are the same wherever it stands, alone or among others."""
    layout = expert(64, 320, codec)
    if codec == "mxfp4":
        made = [drawn(64, 320, 1), drawn(64, 320, 2), drawn(320, 64, 3)]
    else:
        made = [drawn_blocks(64, 320, layout["gate+up"], seed) for seed in (1, 2)]
        made.append(drawn_blocks(320, 64, layout["down"], 3))
    rows = pack_expert([one for one, _ in made], layout)
    x = np.random.default_rng(0).normal(size=(11, 320)).astype(DTYPES["bf16"])

    cuts = [slice(0, 11), slice(3, 4), slice(8, 10), slice(2, 7)]
    together, *found = multiplied([("gate+up", x[cut]) for cut in cuts], rows, layout)

    for cut, y in zip(cuts[1:], found, strict=True):
        np.testing.assert_array_equal(y, together[cut])


@pytest.mark.parametrize(("working", "codec"), [("bf16", "mxfp4"), ("f32", "mxfp4"), ("bf16", "fp8")])
def test_one_row_alone_is_as_among_others(working: str, codec: str) -> None:
    """The row that is wanted has the bits that it has when all are; where rows are spread the others are zeros."""
    layout = laid_out([("one", (64,), 320)], codec)
    one = drawn(64, 320, 1) if codec == "mxfp4" else drawn_blocks(64, 320, layout["one"], 1)
    rows = pack_expert([one[0]], layout)
    x = np.random.default_rng(0).normal(size=(5, 320)).astype(DTYPES[working])

    def kernel(wanted: jax.Array, x: jax.Array, slot: jax.Array, out: jax.Array) -> None:
        for i in range(3):
            out[i] = expert_dot(x[...], slot, layout, "one", alone=wanted[i])

    smem, vmem = (pl.BlockSpec(memory_space=space) for space in (pltpu.SMEM, pltpu.VMEM))
    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((3, 5, 128), jnp.float32),
        in_specs=[smem, vmem, vmem],
        interpret=pltpu.InterpretParams(),
    )
    every, last, first = np.asarray(call(np.array([-1, 4, 0], np.int32), x, rows))

    for found, row in (last, 4), (first, 0):
        if working == "bf16":
            np.testing.assert_array_equal(found[row], every[row])
        np.testing.assert_allclose(found[row], every[row], rtol=1e-6, atol=1e-5)
        assert np.delete(found, row, axis=0).any() == (codec == "fp8")
        assert every[row].any()


def test_scales_of_other_groups_would_be_noticed() -> None:
    """The comparison fails for a matrix whose scales are moved by one group."""
    layout = laid_out([("one", (64,), 512)], "mxfp4")
    stored, matrix = drawn(64, 512, 1)
    rows = pack_expert([Quantised(stored.codes, np.roll(stored.scales, 1, axis=1))], layout)
    x = np.ones((1, 512), DTYPES["bf16"])

    [found] = multiplied([("one", x)], rows, layout)

    with pytest.raises(AssertionError):
        close(found, x, matrix)


def libtpu() -> bool:
    """Whether there is a compiler for TPUs."""
    try:
        return bool(metadata.version("libtpu"))
    except metadata.PackageNotFoundError:
        return False


@pytest.mark.skipif(not libtpu(), reason="needs libtpu")
@pytest.mark.parametrize("codec", ["mxfp4", "fp8"])
@pytest.mark.parametrize("b", [1, 8])
@pytest.mark.parametrize("target", thorough_but(("tpu7x",), TOPOLOGIES))
def test_it_compiles(target: str, b: int, codec: str) -> None:
    """Both products of an expert of Kimi K3, for every TPU, for all rows or one of them."""
    layout = expert(*REAL, codec)

    def kernel(wanted: jax.Array, x: jax.Array, slot: jax.Array, out: jax.Array) -> None:
        y = expert_dot(x[...], slot, layout, "gate+up", target == "tpu7x", wanted[0])
        hidden = (jax.nn.silu(y[:, :384]) * y[:, 384:]).astype(jnp.bfloat16)
        out[...] = expert_dot(hidden, slot, layout, "down", target == "tpu7x", wanted[0])

    smem, vmem = (pl.BlockSpec(memory_space=space) for space in (pltpu.SMEM, pltpu.VMEM))
    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((b, 3584), jnp.float32),
        in_specs=[smem, vmem, vmem],
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=32 << 20),
    )
    arguments = [
        jax.ShapeDtypeStruct(*shape)
        for shape in (((1,), jnp.int32), ((b, 3584), jnp.bfloat16), ((layout.rows, 512), jnp.int32))
    ]

    assert "tpu_custom_call" in compile_for(target, call, arguments)
