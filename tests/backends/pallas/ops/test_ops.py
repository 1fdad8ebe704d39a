"""Each op inside a kernel against the reference's, interpreted; and compiled for every TPU at real models' shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from itertools import chain, islice, product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.mosaic import TOPOLOGIES, compile_for
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from mks.backends.pallas import ops
from mks.backends.pallas.ops.rope import rotated, turns
from mks.backends.reference import ops as reference

f32, bf16, int32 = jnp.float32, jnp.bfloat16, jnp.int32
ROWS = (1, 3, 8)
type Call = tuple[Callable, tuple[Any, ...]]  # an op and its operands


def kinds(b: int, *shapes: tuple) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Arguments of the given shapes, with `b` for each "B"; a type may follow (f32 by default)."""
    every = [(s[:-1], s[-1]) if not isinstance(s[-1], int) else (s, f32) for s in shapes]
    return tuple(jax.ShapeDtypeStruct(tuple(b if n == "B" else n for n in shape), dtype) for shape, dtype in every)


def drawn(b: int, *shapes: tuple) -> tuple[jax.Array, ...]:
    """Some numbers of the given shapes, both signs."""
    wanted = kinds(b, *shapes)
    draw = np.random.default_rng(sum(k.size for k in wanted))
    return tuple(jnp.asarray(draw.normal(size=k.shape) * 3, k.dtype) for k in wanted)


def kernel(calls: Sequence[Call], *, interpret: bool = False, by_reference: bool = False) -> Callable:
    """A kernel that is nothing but some ops over values, or references, in VMEM; it takes their operands in order."""
    vmem = pl.BlockSpec(memory_space=pltpu.VMEM)
    shapes, tree = jax.tree.flatten([jax.eval_shape(op, *arguments) for op, arguments in calls])
    count = sum(len(arguments) for _, arguments in calls)

    def body(*refs):
        ins = iter(refs[:count])
        found = []
        for op, arguments in calls:
            own = list(islice(ins, len(arguments)))
            found += jax.tree.leaves(op(*own) if by_reference else op(*(ref[...] for ref in own)))
        for ref, value in zip(refs[count:], found, strict=True):
            ref[...] = value

    call = pl.pallas_call(
        body,
        out_shape=shapes,
        in_specs=[vmem] * count,
        out_specs=[vmem] * len(shapes),
        interpret=pltpu.InterpretParams() if interpret else False,
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=60 << 20),
    )
    return lambda *a: jax.tree.unflatten(tree, call(*a))


def run(calls: Sequence[Call], **how: bool) -> list[Any]:
    """What the ops give in the interpreter; they share one kernel, as most of the time goes into making it."""
    return kernel(calls, interpret=True, **how)(*chain.from_iterable(arguments for _, arguments in calls))


def same(found: Any, expected: Any) -> None:
    """Equal but for rounding in f32."""
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        largest = np.abs(b, where=np.isfinite(b), out=np.zeros(b.shape)).max()
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * largest)


def agree(calls: Sequence[Call], reference: Sequence[Callable]) -> None:
    """What the ops give is what functions of the same operands give."""
    operands = [arguments for _, arguments in calls]
    expected = jax.jit(lambda every: [f(*each) for f, each in zip(reference, every, strict=True)])(operands)

    same(run(calls), expected)


# Scalars and operands by op.
CASES: dict[str, list[tuple[dict[str, Any], list[tuple]]]] = {
    "softmax": [({}, [("B", 5, 24)]), ({}, [("B", 128)])],
    "mask": [({"used": 130}, [("B", 200)])],
    "rms_norm": [({"eps": 1e-5}, [("B", *shape), (1, shape[-1])]) for shape in [(576,), (16, 128), (6, 24)]],
    "l2_norm": [({"eps": 1e-6}, [("B", *shape)]) for shape in [(2, 128), (2, 16), (40,)]],
    "heads": [({"n": n}, [("B", n * w)]) for n, w in [(9, 64), (2, 128), (3, 512), (6, 24), (1, 256)]],
    "flat": [({}, [("B", *shape)]) for shape in [(9, 64), (6, 128), (5, 8), (40,)]],
    "split": [({"width": (256, 256)}, [("B", 3, 512)]), ({"width": (8, 24, 1)}, [("B", 33)])],
    "concat": [({}, [("B", 6, 128), ("B", 6, 64)]), ({}, [("B", 16), (1, 8)])],
}


@pytest.mark.parametrize("name", CASES)
def test_op(name: str) -> None:
    """The values are the reference's."""
    calls, expected = [], []
    for (scalars, shapes), b in product(CASES[name], ROWS):
        lead = {"lead": 1} if name == "flat" else {}
        calls.append((partial(ops.find(name), **scalars), drawn(b, *shapes)))
        expected.append(partial(reference.find(name), **scalars, **lead))

    agree(calls, expected)


def test_elementwise() -> None:
    """Ops of one and of two operands, which broadcast; scalars are Python numbers."""
    one, two = "neg exp tanh sigmoid silu softplus f32".split(), "add sub mul div max min".split()

    def every(find, x, y):
        some = [find("add")(1, find("mul")(x, 0.25))]
        return some + [find(name)(x) for name in one] + [find(name)(x, y) for name in two]

    shapes = [(1, 40), (3, 5, 24), (8, 200)]
    calls = [(partial(every, ops.find), drawn(b, ("B", *shape), (1, shape[-1]))) for b, *shape in shapes]

    agree(calls, [partial(every, reference.find)] * 3)


def test_powers() -> None:
    """Powers and roots of positive numbers."""

    def every(find, x, y):
        return [find("pow")(x, y), find("pow")(x, -0.5), find("pow")(x, 2), find("sqrt")(x)]

    x, y = drawn(3, ("B", 24), (1, 24))

    agree([(partial(every, ops.find), (jnp.abs(x) + 0.1, y))], [partial(every, reference.find)])


def test_gain_is_a_number() -> None:
    """A norm may have a number for its gain."""
    both = [partial(find("rms_norm"), gain=2.5, eps=1e-6) for find in (ops.find, reference.find)]

    agree([(both[0], drawn(3, ("B", 40)))], both[1:])


def turned(x: jax.Array, position: jax.Array, **scalars: Any) -> jax.Array:
    """The reference's `rope`."""
    return reference.find("rope")(x[:, None], position, **scalars)[:, 0]


def at(b: int) -> jax.Array:
    """Positions of `b` rows, early and late."""
    return jnp.asarray([100000, 0, 7, 131071, 4095, 1, 65537, 31][:b], int32)[:, None]


ROPES = [
    ((9, 64), {"theta": 1e5}),
    ((8, 128), {"theta": 1e6}),
    ((3, 256), {"theta": 1e7, "width": 64}),
    ((2, 256), {"theta": 1e4, "width": 256}),
    ((6, 32), {"theta": 1e7, "width": 8.0}),
    ((2, 24), {"theta": 1e4, "scaling": 4}),
    ((24,), {"theta": 1e4, "width": 2}),
]


@pytest.mark.parametrize("pairs", [0, 1])
def test_rope(pairs: int) -> None:
    """Rows at positions of their own turn as the reference's do, whichever channels they pair."""
    calls, expected = [], []
    for (shape, scalars), b in product(ROPES, ROWS):
        calls.append((partial(ops.find("rope"), pairs=pairs, **scalars), (*drawn(b, ("B", *shape)), at(b))))
        expected.append(partial(turned, pairs=pairs, **scalars))

    agree(calls, expected)


def test_rope_far_out() -> None:
    """Late positions turn by the exact sine and cosine of their f32 angle."""
    n, theta = 128, 1e6
    (x,), position = drawn(2, ("B", 2, n)), np.asarray([[100000], [131071]], np.int32)
    angle = position.astype(np.float32) * np.asarray(theta ** (-np.arange(0, n, 2) / n), np.float32)
    cos, sin = (turn(angle.astype(np.float64))[:, None] for turn in (np.cos, np.sin))
    a, b = np.split(np.asarray(x, np.float64), 2, axis=-1)
    (found,) = run([(partial(ops.find("rope"), theta=theta), (x, jnp.asarray(position)))])

    np.testing.assert_allclose(found, np.concatenate([a * cos - b * sin, b * cos + a * sin], -1), rtol=0, atol=1e-5)


def test_turns_serve_every_head() -> None:
    """What one position turns by is found once and used by queries and keys alike."""

    def both(q, k, position):
        turn = turns(position, 256, theta=1e7, width=64)
        return [rotated(x, turn, width=64) for x in (q, k)]

    def each(q, k, position):
        return [turned(x, position, theta=1e7, width=64) for x in (q, k)]

    agree([(both, (*drawn(3, ("B", 6, 256), ("B", 1, 256)), at(3)))], [each])


@pytest.mark.parametrize("dtype", [bf16, f32])
def test_causal_conv(dtype: Any) -> None:
    """The value sees its own input exactly, earlier ones as the state keeps them, bit for bit as the reference does."""
    op, other = ops.find("causal_conv"), reference.find("causal_conv")
    shapes = [(c, n, b) for (c, n), b in product([(256, 4), (40, 4), (24, 2)], ROWS)]
    calls = [(op, drawn(b, ("B", c), (n, c), ("B", n - 1, c, dtype))) for c, n, b in shapes]

    for (found, after), (_, (x, taps, state)) in zip(run(calls), calls, strict=True):
        expected, kept = jax.jit(other)(x[:, None], taps.T, state, lengths=np.ones(len(x), np.int32))
        same(found, expected[:, 0])
        assert after.dtype == dtype
        np.testing.assert_array_equal(np.asarray(after, f32), np.asarray(kept, f32))


@pytest.mark.parametrize("by_reference", [False, True])
def test_argmax(by_reference: bool) -> None:
    """The largest wherever it stands, the lowest index on ties, in rows that are all masked or no numbers the first."""
    rows = []
    for n, b in product([40, 1024, 1500, 5000], ROWS):
        x = np.array(drawn(b, ("B", n))[0])
        for row in range(b):
            x[row, [n - 1, n - 1 - row, (row * 977) % n]] = 100
        x[b // 2, :] = -np.inf if b < 8 else np.nan
        rows.append(x)

    for x, found in zip(rows, run([(ops.find("argmax"), (x,)) for x in rows], by_reference=by_reference), strict=True):
        assert (found.shape, found.dtype) == ((len(x), 1), int32)
        np.testing.assert_array_equal(found[:, 0], np.argmax(x, axis=-1))


@pytest.mark.parametrize("by_reference", [False, True])
def test_argmax_of_a_part(by_reference: bool) -> None:
    """What stands beyond the used elements is never chosen."""
    (x,) = drawn(3, ("B", 5632))
    calls = [(partial(ops.find("argmax"), used=used), (x.at[:, used:].set(jnp.nan),)) for used in (1, 1024, 5500)]

    for (op, _), found in zip(calls, run(calls, by_reference=by_reference), strict=True):
        np.testing.assert_array_equal(found[:, 0], np.argmax(x[:, : op.keywords["used"]], axis=-1))


def test_find(monkeypatch: pytest.MonkeyPatch) -> None:
    """Built-in ops go before those of installed packages, and an unknown name is a `KeyError`."""
    points = [metadata.EntryPoint(name, "math:cbrt", "mks.pallas") for name in ("cube_root", "exp")]
    monkeypatch.setattr(metadata, "entry_points", lambda group: points if group == "mks.pallas" else [])
    ops.brought.cache_clear()
    try:
        assert ops.find("cube_root")(27.0) == pytest.approx(3)
        assert ops.find("exp") is jnp.exp
        with pytest.raises(KeyError):
            ops.find("fourth_root")
    finally:
        ops.brought.cache_clear()


def to_compile(b: int) -> list[Call]:
    """Ops at the shapes of SmolLM2, Qwen3, one of eight cores of Qwen3.8, and of small models."""
    every: list[tuple[str, dict[str, Any], list[tuple]]] = [
        *[(name, {}, [("B", 2176), (1, 2176)]) for name in "add sub mul div pow max min".split()],
        *[(name, {}, [("B", 6, 128)]) for name in "neg exp tanh sigmoid silu sqrt softplus f32 softmax".split()],
        *[(name, {}, [("B", n)]) for name, n in [("softplus", 6), ("sigmoid", 6), ("silu", 1536), ("silu", 3072)]],
        ("mask", {"used": 49000}, [("B", 49152)]),
        *[("rms_norm", {"eps": 1e-6}, [("B", n), (1, n)]) for n in (64, 576, 1024, 5120)],
        *[("rms_norm", {"eps": 1e-6}, [("B", h, w), (1, w)]) for h, w in [(16, 128), (6, 128), (3, 256), (6, 16)]],
        *[("l2_norm", {"eps": 1e-6}, [("B", h, w)]) for h, w in [(2, 128), (2, 16)]],
        *[
            (name, scalars, [shape])
            for h, w in [(9, 64), (3, 64), (16, 128), (8, 128), (3, 512), (1, 256), (2, 128), (6, 32), (2, 16), (2, 8)]
            for name, scalars, shape in [("heads", {"n": h}, ("B", h * w)), ("flat", {}, ("B", h, w))]
        ],
        *[("split", {"width": (w, w)}, [("B", h, 2 * w)]) for h, w in [(3, 256), (6, 32)]],
        *[("concat", {}, [("B", 6, 128), ("B", 6, w)]) for w in (64, 128)],
        *[
            ("rope", {"theta": 1e6, "width": width, "pairs": pairs}, [("B", h, w), ("B", 1, int32)])
            for h, w, width in [(9, 64, None), (16, 128, None), (3, 256, 64), (1, 256, 256), (6, 32, 8)]
            for pairs in (0, 1)
        ],
        *[
            ("causal_conv", {}, [("B", c), (4, c), ("B", 3, c, dtype)])
            for c in (256, 768, 32, 96)
            for dtype in (bf16, f32)
        ],
        *[
            ("causal_conv", {}, [("B", c), (n, c), ("B", n - 1, c, dtype)])
            for c, n, dtype in [(96, 2, bf16), (256, 3, f32)]
        ],
    ]
    return [(partial(ops.find(name), **scalars), kinds(b, *shapes)) for name, scalars, shapes in every]


def compiles(target: str, b: int) -> None:
    """Raises where the compiler refuses one."""
    rows = [(ops.find("argmax"), kinds(b, ("B", n))) for n in (256, 31040, 49152, 151936)]
    rows += [(partial(ops.find("argmax"), used=31040), kinds(b, ("B", 31232)))]
    for by_reference, calls in [(False, to_compile(b)), (False, rows), (True, rows)]:
        arguments = list(chain.from_iterable(each for _, each in calls))
        assert "tpu_custom_call" in compile_for(target, kernel(calls, by_reference=by_reference), arguments)


def test_compiles() -> None:
    """The compiler takes the shapes of real models."""
    pytest.importorskip("libtpu")

    compiles("tpu7x", 1)


@pytest.mark.slow
@pytest.mark.parametrize("target", TOPOLOGIES)
@pytest.mark.parametrize("b", [1, 2, 3, 8])
def test_compiles_for_every_target(b: int, target: str) -> None:
    """Every target takes them, for any number of rows."""
    pytest.importorskip("libtpu")

    compiles(target, b)
