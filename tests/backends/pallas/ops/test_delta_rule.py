"""The delta rule on states in VMEM against the reference op, interpreted; and compiled for every TPU."""

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

from mks.backends.pallas.ops.delta_rule import delta_rule
from mks.backends.reference.ops import delta_rule as reference
from mks.backends.reference.rounding import DTYPES
from mks.dsl.program.ir import scratch as work


def arguments(b: int, kh: int, h: int, key: int, val: int, by_key: bool) -> list[jax.ShapeDtypeStruct]:
    """q, k, v, decay, rate and S."""
    shapes = [(b, kh, key)] * 2 + [(b, h, val), (b, h, key) if by_key else (b, h), (b, h), (b, h, key, val)]
    return [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]


def kernel(b: int, kh: int, h: int, key: int, val: int, by_key: bool, interpret: bool = False) -> Callable:
    """`arguments` to the value and the new S."""

    def body(q, k, v, decay, rate, S, value, after, *buffers):
        after[...] = S[...]
        value[...] = delta_rule(q[...], k[...], v[...], decay[...], rate[...], after, *buffers)

    buffers = work.delta_rule(b, kh, h, key, val, by_key)
    vmem = pl.BlockSpec(memory_space=pltpu.VMEM)
    return pl.pallas_call(
        body,
        out_shape=[jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((b, h, val), (b, h, key, val))],
        in_specs=[vmem] * 6,
        out_specs=[vmem] * 2,
        scratch_shapes=[pltpu.VMEM(each.shape, DTYPES[each.dtype]) for each in buffers],
        interpret=pltpu.InterpretParams(uninitialized_memory="nan") if interpret else False,
    )


def drawn(kinds: list[jax.ShapeDtypeStruct], seed: int) -> list[jax.Array]:
    """Keys of length one, decays below zero and rates between zero and one, as models have them."""
    draw = np.random.default_rng(seed)
    q, k, v, decay, rate, S = (draw.normal(size=kind.shape) for kind in kinds)
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    return [jnp.asarray(a, jnp.float32) for a in (q, k, v, -np.exp(decay), 1 / (1 + np.exp(-rate)), S)]


@pytest.mark.parametrize("by_key", [False, True], ids=["by_head", "by_key"])
@pytest.mark.parametrize(
    ("b", "kh", "h", "key", "val"),
    thorough_but([(3, 3, 3, 8, 130)], [(1, 2, 6, 16, 16), (2, 1, 3, 24, 40), (3, 3, 3, 8, 130), (8, 2, 4, 16, 8)]),
)
def test_steps(b: int, kh: int, h: int, key: int, val: int, by_key: bool) -> None:
    """Values and states are the reference's, token after token."""
    kinds = arguments(b, kh, h, key, val, by_key)
    run = jax.jit(kernel(b, kh, h, key, val, by_key, interpret=True))
    S = expected_S = drawn(kinds, 0)[-1]
    for step in range(3):
        vectors = drawn(kinds, step)[:-1]
        value, S = run(*vectors, S)
        by_token = [a[:, None] for a in vectors]
        expected, expected_S = reference(*by_token, expected_S, lengths=jnp.ones(b, jnp.int32))

        for found, wanted in ((value, expected[:, 0]), (S, expected_S)):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * float(jnp.abs(wanted).max()))


def test_rate_of_zero() -> None:
    """Without decay and correction the state stays as it is, to the bit."""
    q, k, v, decay, rate, S = drawn(arguments(2, 1, 2, 8, 8, False), 5)
    _, after = kernel(2, 1, 2, 8, 8, False, interpret=True)(q, k, v, 0 * decay, 0 * rate, S)

    np.testing.assert_array_equal(after, S)


def compiles(target: str, b: int, by_key: bool) -> str:
    """The compiled text at the sizes of one of eight cores of a real model."""
    shape = (b, 2, 6, 128, 128, by_key)
    return compile_for(target, kernel(*shape), arguments(*shape))


@pytest.mark.parametrize(("b", "by_key"), [(1, False), (8, False), (2, True)])
def test_compiles(b: int, by_key: bool) -> None:
    """The compiler takes the sizes of real models."""
    pytest.importorskip("libtpu")

    assert "tpu_custom_call" in compiles("tpu7x", b, by_key)


@pytest.mark.slow
@pytest.mark.parametrize("target", TOPOLOGIES)
@pytest.mark.parametrize("b", [1, 2, 8])
@pytest.mark.parametrize("by_key", [False, True], ids=["by_head", "by_key"])
def test_compiles_for_every_target(b: int, by_key: bool, target: str) -> None:
    """Every target takes them."""
    pytest.importorskip("libtpu")

    assert "tpu_custom_call" in compiles(target, b, by_key)
