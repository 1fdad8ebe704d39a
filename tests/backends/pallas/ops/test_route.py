"""The choice of experts in a kernel against the reference's, interpreted; and compiled for every TPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.mosaic import TOPOLOGIES, compile_for
from helpers.tiers import thorough_but
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from mks.backends.pallas.ops.route import list_chosen, route, weight_of
from mks.backends.reference.ops import find

f32, int32 = jnp.float32, jnp.int32
VMEM, SMEM = (pl.BlockSpec(memory_space=space) for space in (pltpu.VMEM, pltpu.SMEM))


def routed(b: int, n: int, interpret: bool = False, **how: Any) -> Callable:
    """A kernel from score `[b, n]` and bias `[1, n]` to weights and who is chosen."""

    def body(score, bias, weights, chosen):
        weights[...], chosen[...] = route(score[...], bias[...], **how)

    kinds = [jax.ShapeDtypeStruct((b, n), dtype) for dtype in (f32, int32)]
    return pl.pallas_call(
        body,
        out_shape=kinds,
        in_specs=[VMEM] * 2,
        out_specs=[VMEM] * 2,
        interpret=pltpu.InterpretParams() if interpret else False,
    )


def expected(score: np.ndarray, bias: np.ndarray, **how: Any) -> tuple[np.ndarray, np.ndarray]:
    """What the reference gives, dense."""
    routes = find("route")(score, bias[0], **how)
    weights, chosen = np.zeros(score.shape, np.float32), np.zeros(score.shape, np.int32)
    np.put_along_axis(weights, np.asarray(routes.ids), np.asarray(routes.weights), 1)
    np.put_along_axis(chosen, np.asarray(routes.ids), 1, 1)
    return weights, chosen


def agree(score: np.ndarray, bias: np.ndarray, **how: Any) -> None:
    """The kernel chooses as the reference does, and gives its weights."""
    found = routed(*score.shape, interpret=True, **how)(score, bias)
    weights, chosen = expected(score, bias, **how)

    np.testing.assert_array_equal(found[1], chosen)
    np.testing.assert_allclose(found[0], weights, rtol=1e-6, atol=0)


def drawn(b: int, n: int, levels: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores between zero and one and biases of both signs; with some levels only, many are equal."""
    draw = np.random.default_rng(b * n + levels)
    score, bias = draw.uniform(0.1, 1, (b, n)), draw.normal(size=(1, n)) * 0.1
    if levels:
        score, bias = np.ceil(score * levels) / levels, np.round(bias * levels) / levels
    return score.astype(np.float32), bias.astype(np.float32)


ROUTES = [
    (1, 896, 16, 0),
    (3, 896, 16, 4),
    (8, 896, 16, 1),
    (2, 512, 10, 8),
    (1, 300, 8, 4),
    (2, 128, 8, 2),
    (5, 60, 6, 3),
    (1, 16, 1, 0),
    (2, 512, 40, 8),
    (9, 256, 8, 4),
]


@pytest.mark.parametrize(("b", "n", "top", "levels"), thorough_but(ROUTES[1:4], ROUTES))
def test_route(b: int, n: int, top: int, levels: int) -> None:
    """Choices are the reference's with and without ties, for all ways to find them."""
    agree(*drawn(b, n, levels), top=top)


@pytest.mark.parametrize(
    ("n", "groups", "keep", "top", "levels"),
    [
        (256, 8, 4, 8, 0),
        (256, 8, 4, 8, 2),
        (24, 4, 1, 6, 2),
        (24, 3, 1, 10, 0),
    ],
)
def test_groups(n: int, groups: int, keep: int, top: int, levels: int) -> None:
    """Only the strongest groups take part, until nothing is left in them."""
    agree(*drawn(3, n, levels), top=top, groups=groups, keep=keep, scale=2.5)


def test_one_lane() -> None:
    """All that is chosen may stand in the same few places of the registers."""
    score, bias = drawn(2, 896, 0)
    score[0, 5::128] += 1
    score[1, 127::128] += 1
    agree(score, bias, top=16, scale=2)


def test_weights_that_vanish() -> None:
    """Who is chosen is known apart from the weights, which may be zero."""
    score, bias = np.zeros((1, 256), np.float32), drawn(1, 256, 0)[1]
    score[0, 0], bias[0, 0] = 1, 9
    weights, chosen = routed(1, 256, interpret=True, top=8)(score, bias)

    assert int(chosen.sum()) == 8
    np.testing.assert_array_equal(np.nonzero(weights)[1], [0])


def test_no_numbers() -> None:
    """A row that holds NaN leaves the others as they are."""
    score, bias = drawn(2, 896, 0)
    weights, chosen = expected(score, bias, top=16)
    score[1, 100:500] = np.nan
    found = routed(2, 896, interpret=True, top=16)(score, bias)

    np.testing.assert_array_equal(found[1][0], chosen[0])
    np.testing.assert_allclose(found[0][0], weights[0], rtol=1e-6, atol=0)


def listed(b: int, n: int, count: int, interpret: bool = False, first: int | None = None) -> Callable:
    """A kernel from who is chosen `[b, n]`, weights and `first [1]` to the list and the weights of those in it.

    `first` is a number that it is written for, or is read.
    """

    def body(chosen, weights, start, ids, every):
        every[...] = jnp.zeros((b, count), f32)
        found = list_chosen(chosen[...], start[0] if first is None else first, count, ids)

        def one(i: jax.Array, _: None) -> None:
            expert = ids[i + 1] + start[0]
            weight = (weight_of(weights, expert) + weight_of(weights[...], expert)) / 2
            place = jax.lax.broadcasted_iota(int32, (b, count), 1)
            every[...] = jnp.where(place == i, weight, every[...])

        jax.lax.fori_loop(0, found, one, None)

    return pl.pallas_call(
        body,
        out_shape=[jax.ShapeDtypeStruct((count + 1,), int32), jax.ShapeDtypeStruct((b, count), f32)],
        in_specs=[VMEM, VMEM, SMEM],
        out_specs=[SMEM, VMEM],
        interpret=pltpu.InterpretParams() if interpret else False,
    )


LISTS = [
    (1, 896, 0, 896, 16, True),
    (8, 896, 224, 224, 16, False),
    (2, 896, 672, 224, 16, True),
    (1, 896, 831, 65, 200, False),
    (3, 896, 33, 40, 0, True),
    (2, 60, 15, 45, 6, False),
    (1, 64, 32, 32, 64, True),
    (1, 1500, 1100, 400, 500, False),
]


@pytest.mark.parametrize(("b", "n", "first", "count", "each", "known"), thorough_but(LISTS[1:3], LISTS))
def test_list(b: int, n: int, first: int, count: int, each: int, known: bool) -> None:
    """This core's experts that any row chose, ascending, and their weights."""
    draw = np.random.default_rng(n + count)
    chosen = np.zeros((b, n), np.int32)
    for row in chosen:
        row[draw.choice(n, each, replace=False)] = 1
    weights = np.where(chosen, draw.uniform(0.1, 1, (b, n)), 0).astype(np.float32)
    if not each:
        chosen[:, [first - 1, first + count]] = 1
    run = listed(b, n, count, interpret=True, first=first if known else None)
    ids, of_each = run(chosen, weights, np.array([first], np.int32))
    wanted = np.flatnonzero(chosen.any(0)[first : first + count])

    assert ids[0] == len(wanted)
    np.testing.assert_array_equal(ids[1 : len(wanted) + 1], wanted)
    np.testing.assert_array_equal(of_each[:, : len(wanted)], weights[:, first + wanted])


def compiles(target: str, b: int) -> None:
    """Raises where the compiler refuses what Kimi K3 and others need."""
    kind = jax.ShapeDtypeStruct
    for n, top, count in [(896, 16, 224), (896, 16, 896), (512, 10, 512), (64, 6, 8), (1024, 32, 128)]:
        assert "tpu_custom_call" in compile_for(target, routed(b, n, top=top), [kind((b, n), f32), kind((1, n), f32)])
        operands = [kind((b, n), int32), kind((b, n), f32), kind((1,), int32)]
        assert "tpu_custom_call" in compile_for(target, listed(b, n, count), operands)


def test_compiles() -> None:
    """The compiler takes the sizes of real models."""
    pytest.importorskip("libtpu")

    compiles("tpu7x", 1)


@pytest.mark.slow
@pytest.mark.parametrize("target", TOPOLOGIES)
@pytest.mark.parametrize("b", [1, 2, 3, 8])
def test_compiles_for_every_target(b: int, target: str) -> None:
    """Every target takes them, for any number of rows."""
    pytest.importorskip("libtpu")

    compiles(target, b)
