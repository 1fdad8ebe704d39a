"""The mixture of streams in a kernel against the reference's, interpreted; and compiled for every TPU."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.mosaic import TOPOLOGIES, compile_for
from helpers.tiers import thorough_but
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.typing import DTypeLike

from mks.backends.pallas.ops.mix import mix
from mks.backends.reference.ops import find

f32, bf16 = jnp.float32, jnp.bfloat16
EPS = 1e-5


def kernel(
    n: int, b: int, d: int, dtype: DTypeLike, interpret: bool = False, used: int | None = None
) -> tuple[Callable, list[jax.ShapeDtypeStruct]]:
    """A kernel and what it takes: banks, x, folded, and how many banks are used if it is not written for a number."""

    def body(banks, x, folded, count, out):
        out[...] = mix(banks, x[...], folded[...], eps=EPS, used=count[0] if used is None else used)

    vmem, smem = (pl.BlockSpec(memory_space=space) for space in (pltpu.VMEM, pltpu.SMEM))
    call = pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((b, d), f32),
        in_specs=[vmem] * 3 + [smem],
        out_specs=vmem,
        interpret=pltpu.InterpretParams() if interpret else False,
    )
    kinds = [((n, b, d), dtype), ((b, d), f32), ((1, d), f32), ((1,), jnp.int32)]
    return call, [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in kinds]


def agree(n: int, b: int, d: int, dtype: DTypeLike, used: int, sharp: float, known: bool = False) -> None:
    """The mixture is the reference's, whatever the banks hold that are not used; `sharp` scales the scores."""
    call, kinds = kernel(n, b, d, dtype, interpret=True, used=used if known else None)
    draw = np.random.default_rng(n + b + d + used)
    banks, x, folded = (jnp.asarray(draw.normal(size=kind.shape), kind.dtype) for kind in kinds[:3])
    folded = folded * sharp / d**0.5
    found = call(banks.at[used:].set(jnp.nan), x, folded, np.array([used], np.int32))
    expected = find("mix")(jnp.moveaxis(banks.astype(f32), 0, 1), x, folded[0], eps=EPS, used=jnp.arange(n) < used)

    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=2e-6)


CASES = [
    (8, 1, 1024, 5, bf16),
    (8, 1, 1024, 8, f32),
    (8, 8, 1152, 8, bf16),
    (3, 2, 640, 1, f32),
    (8, 3, 512, 7, bf16),
    (2, 1, 40, 2, bf16),
    (2, 3, 600, 1, f32),
    (4, 1, 128, 0, bf16),
    (4, 8, 256, 0, f32),
]


@pytest.mark.parametrize(("n", "b", "d", "used", "dtype"), thorough_but((CASES[4], CASES[8]), CASES))
def test_mix(n: int, b: int, d: int, used: int, dtype: DTypeLike) -> None:
    """All of the banks, some or none."""
    agree(n, b, d, dtype, used, sharp=1)


@pytest.mark.parametrize("b", [1, 2])
def test_sharp(b: int) -> None:
    """Scores that are far apart, too, and a number of banks that is known."""
    agree(4, b, 256, bf16, 3, sharp=200, known=True)


def compiles(target: str, b: int, dtype: DTypeLike) -> None:
    """Raises where the compiler refuses it."""
    assert "tpu_custom_call" in compile_for(target, *kernel(8, b, 7168, dtype))


@pytest.mark.parametrize("b", [1, 8])
def test_compiles(b: int) -> None:
    """The compiler takes the sizes of a real model."""
    pytest.importorskip("libtpu")

    compiles("tpu7x", b, bf16)


@pytest.mark.slow
@pytest.mark.parametrize("target", TOPOLOGIES)
@pytest.mark.parametrize("dtype", [bf16, f32])
@pytest.mark.parametrize("b", [1, 2, 3, 8])
def test_compiles_for_every_target(b: int, dtype: DTypeLike, target: str) -> None:
    """Every target takes it, for any number of rows."""
    pytest.importorskip("libtpu")

    compiles(target, b, dtype)
