"""Attention by tiles against the reference op, interpreted; and compiled for every TPU."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.mosaic import TOPOLOGIES, compile_for
from helpers.tiers import thorough_but
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from mks.backends.pallas.ops.attend import apart, merged, none_of, own, result, tile, together
from mks.backends.reference.caches import Cache
from mks.backends.reference.ops.attend import attend

SIZE = 128


def kernel(
    b: int, h: int, n: int, t: int, scale: float, last: int | None, exact: bool = False, interpret: bool = False
) -> Callable:
    """Rows of queries over caches in VMEM, of each row or one for all: `[B]`, `[B, h, w]`, `[B, kv, w]`, `[B, kv, n]`
    and the tiles `[B or 1, tiles, kv, t, w]`, `[B or 1, tiles, kv, t, n]` to `[B, h, n]`."""

    def body(position, q, k, v, keys, values, out):
        def row(r, _):
            at = position[r]
            queries = q[r] if exact else q[r].astype(keys.dtype)
            first = 0 if last is None else jnp.maximum(at - last + 1, 0) // t

            def one(i, so_far):
                of = r if keys.shape[0] == b else 0
                return tile(so_far, [queries], [keys.at[of, i]], values.at[of, i], i * t, at, scale, last)

            out[r] = result(lax.fori_loop(first, (at + t - 1) // t, one, own([queries], [k[r]], v[r], scale)))
            return 0

        lax.fori_loop(0, b, row, 0)

    vmem = pl.BlockSpec(memory_space=pltpu.VMEM)
    return pl.pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct((b, h, n), jnp.float32),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), *[vmem] * 5],
        out_specs=vmem,
        interpret=pltpu.InterpretParams(uninitialized_memory="nan") if interpret else False,
    )


def both(
    h: int, kv: int, w: int, n: int, t: int, dtype, last: int | None, positions: list[int], exact: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """What the kernel says, with NaN in all entries that are not written, and what the reference says."""
    draw, b = np.random.default_rng(h * w + t), len(positions)
    q = jnp.asarray(draw.normal(size=(b, h, w)) * 3, jnp.float32 if exact else dtype).astype(jnp.float32)
    keys, values = (jnp.asarray(draw.normal(size=(b, kv, SIZE, width)), dtype) for width in (w, n))
    at = jnp.asarray(positions)
    place = jnp.arange(SIZE)[None, None, :, None]
    written = place <= at[:, None, None, None]
    caches = [Cache(jnp.where(written, a, 0)[None], 0, 0, 1, last) for a in (keys, values)]
    expected = attend(q[:, None], *caches, scale=w**-0.5, position=at[:, None], lengths=jnp.ones(b, jnp.int32))

    # The tiles do not hold the row's own token yet.
    tiles = [
        jnp.where(place < at[:, None, None, None], a, jnp.nan)
        .reshape(b, kv, SIZE // t, t, a.shape[-1])
        .transpose(0, 2, 1, 3, 4)
        for a in (keys, values)
    ]
    new = [a[jnp.arange(b), :, at].astype(jnp.float32) for a in (keys, values)]
    found = kernel(b, h, n, t, w**-0.5, last, exact, interpret=True)(at, q, *new, *tiles)
    return np.asarray(found), np.asarray(expected[:, 0])


CASES = [
    (3, 1, 16, 16, 32, jnp.bfloat16),
    (9, 3, 24, 40, 32, jnp.bfloat16),
    (9, 3, 24, 40, 32, jnp.float32),
    (16, 8, 8, 8, 64, jnp.bfloat16),
    (4, 2, 16, 8, 128, jnp.float32),
]


@pytest.mark.parametrize(("h", "kv", "w", "n", "t", "dtype"), thorough_but(CASES[3:], CASES))
def test_tiles(h: int, kv: int, w: int, n: int, t: int, dtype) -> None:
    """The values are the reference's at positions on and around tile boundaries; NaN beyond them has no effect."""
    found, expected = both(h, kv, w, n, t, dtype, None, [0, 1, t - 1, min(t, 127), min(t + 1, 126), 100])

    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("last", thorough_but((7,), (1, 7, 60)))
def test_window(last: int) -> None:
    """A window hides what is older, in whole and in broken tiles."""
    found, expected = both(3, 1, 16, 16, 32, jnp.bfloat16, last, [0, 5, 31, 32, 33, 64, 91, 127])

    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_exact_queries() -> None:
    """Queries in f32 are not rounded to their bf16 caches' type."""
    found, expected = both(9, 3, 24, 40, 32, jnp.bfloat16, None, [31, 77], exact=True)

    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_large_scores() -> None:
    """Scores that leave all weight to one position, in whichever tile, do not overflow."""
    at, t = 100, 32
    k = jnp.zeros((1, 1, 4, t, 16)).at[0, 0, 1, 3].set(1000.0)
    v = jnp.zeros((1, 1, 4, t, 16)).at[0, 0, 1, 3].set(jnp.arange(16.0))
    swap = [a.transpose(0, 2, 1, 3, 4) for a in (k, v)]
    run = kernel(1, 3, 16, t, 1.0, None, interpret=True)
    found = run(jnp.asarray([at]), jnp.ones((1, 3, 16)), jnp.zeros((1, 1, 16)), jnp.ones((1, 1, 16)), *swap)

    np.testing.assert_allclose(found[0], np.tile(np.arange(16.0), (3, 1)))


@pytest.mark.parametrize("kv", thorough_but((3,), (1, 3)))
def test_softmaxes_of_parts(kv: int) -> None:
    """Tiles that several parts have seen, one of them none, make the result of one that has seen all."""
    draw, h, w, n, t, scale = np.random.default_rng(3), 6, 16, 128, 32, 1.0
    q, k, v = (jnp.asarray(draw.normal(size=size) * 4, jnp.float32) for size in ((h, w), (kv, w), (kv, n)))
    keys, values = (jnp.asarray(draw.normal(size=(4, kv, t, width)) * 4, jnp.float32) for width in (w, n))
    start = own([q], [k], v, scale)

    def seen(so_far, tiles):
        for i in tiles:
            so_far = tile(so_far, [q], [keys[i]], values[i], 0, t - 5 * (i == 3), scale)
            so_far = together(apart(so_far))
        return so_far

    nothing = none_of(start)
    parts = [seen(nothing, [0]), seen(nothing, []), seen(start, [2]), seen(nothing, [3, 1])]
    found = merged([apart(part) for part in parts])

    np.testing.assert_allclose(found, result(seen(start, range(4))), rtol=1e-5, atol=1e-5)
    assert np.abs(found - merged([apart(part) for part in parts[1:]])).max() > 1e-2
    np.testing.assert_array_equal(merged([apart(start), apart(nothing)]), result(start))


def compiles(target: str, b: int, h: int, kv: int, w: int, dtype, last: int | None) -> str:
    """The compiled text of `kernel` with tiles of 256."""
    kinds = [((b,), jnp.int32), ((b, h, w), jnp.float32), *[((b, kv, w), jnp.float32)] * 2]
    kinds += [((1, 2, kv, 256, w), dtype)] * 2
    return compile_for(target, kernel(b, h, w, 256, w**-0.5, last), [jax.ShapeDtypeStruct(*kind) for kind in kinds])


REAL = [(3, 1, 256), (16, 8, 128), (9, 3, 64)]


@pytest.mark.parametrize(("h", "kv", "w"), REAL)
def test_compiles(h: int, kv: int, w: int) -> None:
    """The compiler takes the shapes of real models."""
    pytest.importorskip("libtpu")

    assert "tpu_custom_call" in compiles("tpu7x", 2, h, kv, w, jnp.bfloat16, None)


@pytest.mark.slow
@pytest.mark.parametrize("target", TOPOLOGIES)
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize("b", [1, 2, 8])
@pytest.mark.parametrize(("h", "kv", "w"), REAL)
def test_compiles_for_every_target(h: int, kv: int, w: int, b: int, dtype, target: str) -> None:
    """Every target takes them, with and without a window."""
    pytest.importorskip("libtpu")

    for last in (None, 300):
        assert "tpu_custom_call" in compiles(target, b, h, kv, w, dtype, last)
