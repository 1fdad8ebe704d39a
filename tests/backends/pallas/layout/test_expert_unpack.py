"""Experts as the reference takes them out of what kernels read."""

from math import gcd

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from helpers.experts import expert
from helpers.tiers import thorough_but

from mks.backends.pallas.layout.expert_unpack import expert_matrices
from mks.models.checkpoint.codecs import E2M1
from mks.models.checkpoint.read import Quantised
from mks.models.packing.experts import pack_expert
from mks.models.packing.requantize import reblocked


@pytest.mark.parametrize(("width", "latent"), thorough_but([(8, 64)], [(8, 64), (96, 512), (300, 608)]))
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_experts_are_what_was_packed(width: int, latent: int, dtype: type) -> None:
    """Several at once, decoded without a rounding but the last one, and without padding."""
    layout = expert(width, latent, "mxfp4")
    draw, packed, expected = np.random.default_rng(0), [], []
    for _ in range(2):
        parts, values = [], []
        for outputs, inputs in [(width, latent)] * 2 + [(latent, width)]:
            group = gcd(32, inputs)
            codes = draw.integers(0, 256, (outputs, inputs // 2), np.uint8)
            scales = draw.integers(1, 250, (outputs, inputs // group), np.uint8)
            plain = E2M1[np.stack([codes & 15, codes >> 4], axis=-1)].reshape(outputs, inputs)
            parts.append(Quantised(codes, scales))
            values.append(plain * np.repeat(np.ldexp(np.float32(1), scales.astype(int) - 127), group, axis=1))
        packed.append(pack_expert(parts, layout))
        expected.append(values)

    found = expert_matrices(jnp.asarray(np.stack(packed)), layout, jnp.dtype(dtype))

    for i, matrix in enumerate(found):
        wanted = np.stack([values[i] for values in expected])
        assert matrix.dtype == dtype
        # XLA takes numbers below the normal ones for zeros.
        small = np.abs(wanted) < np.finfo(np.float32).tiny
        np.testing.assert_array_equal(np.where(small, 0, matrix), np.where(small, 0, wanted.astype(dtype)))


@pytest.mark.parametrize(("width", "latent"), thorough_but([(8, 64)], [(8, 64), (96, 512), (300, 608)]))
def test_blocks_are_what_was_packed(width: int, latent: int) -> None:
    """Experts that were re-blocked decode to the values of those that were not."""
    draw, layouts = np.random.default_rng(0), [expert(width, latent, codec) for codec in ("mxfp4", "fp8")]
    parts = [
        Quantised(
            draw.integers(0, 256, (outputs, inputs // 2), np.uint8),
            draw.integers(120, 134, (outputs, inputs // gcd(32, inputs)), np.uint8),
        )
        for outputs, inputs in [(width, latent)] * 2 + [(latent, width)]
    ]
    again = [
        reblocked(part, inputs, layouts[1][name].group)
        for part, inputs, name in zip(parts, (latent, latent, width), ("gate+up", "gate+up", "down"), strict=True)
    ]

    stored, blocks = (
        expert_matrices(jnp.asarray(pack_expert(p, layout)), layout, jnp.dtype(jnp.float32))
        for p, layout in zip((parts, again), layouts, strict=True)
    )

    for a, b in zip(stored, blocks, strict=True):
        assert a.any()
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("codec", ["bf16", "f32"])
def test_plain_experts_are_what_was_packed(codec: str) -> None:
    """Numbers that are not quantised come bit by bit."""
    dtype = np.dtype({"bf16": ml_dtypes.bfloat16, "f32": np.float32}[codec])
    layout = expert(40, 72, codec)
    draw = np.random.default_rng(0)
    parts = [draw.normal(size=shape).astype(dtype) for shape in [(40, 72), (40, 72), (72, 40)]]

    found = expert_matrices(jnp.asarray(pack_expert(parts, layout)), layout, jnp.dtype(dtype))

    for a, b in zip(found, parts, strict=True):
        np.testing.assert_array_equal(a, b)
