"""Each op inside a kernel against the reference's, interpreted; and compiled for every TPU at real models' shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import metadata
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

pytestmark = pytest.mark.timeout(120)

f32, bf16, int32 = jnp.float32, jnp.bfloat16, jnp.int32
type Kinds = list[jax.ShapeDtypeStruct]


def kinds(b: int, *shapes: tuple) -> Kinds:
    """Arguments of the given shapes, with `b` for each "B"; a type may follow (f32 by default)."""
    every = [(s[:-1], s[-1]) if not isinstance(s[-1], int) else (s, f32) for s in shapes]
    return [jax.ShapeDtypeStruct(tuple(b if n == "B" else n for n in shape), dtype) for shape, dtype in every]


def kernel(op: Callable, *arguments: Any, interpret: bool = False, by_reference: bool = False) -> Callable:
    """A kernel that is nothing but one op over values, or references, in VMEM."""
    vmem = pl.BlockSpec(memory_space=pltpu.VMEM)
    shapes, tree = jax.tree.flatten(jax.eval_shape(op, *arguments))

    def body(*refs):
        ins, outs = refs[: len(arguments)], refs[len(arguments) :]
        found = op(*ins) if by_reference else op(*(ref[...] for ref in ins))
        for ref, value in zip(outs, jax.tree.leaves(found), strict=True):
            ref[...] = value

    call = pl.pallas_call(
        body, out_shape=shapes, in_specs=[vmem] * len(arguments), out_specs=[vmem] * len(shapes),
        interpret=pltpu.InterpretParams() if interpret else False,
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=60 << 20),
    )  # fmt: skip
    return jax.jit(lambda *a: jax.tree.unflatten(tree, call(*a)))


def run(op: Callable, *arguments: jax.Array, **how: bool) -> Any:
    """What an op gives in the interpreter."""
    return kernel(op, *arguments, interpret=True, **how)(*arguments)


def drawn(*wanted: jax.ShapeDtypeStruct) -> list[jax.Array]:
    """Some numbers of the given shapes, both signs."""
    draw = np.random.default_rng(sum(k.size for k in wanted))
    return [jnp.asarray(draw.normal(size=k.shape) * 3, k.dtype) for k in wanted]


def same(found: Any, expected: Any) -> None:
    """Equal but for rounding in f32."""
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        largest = np.abs(b, where=np.isfinite(b), out=np.zeros(b.shape)).max()
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * largest)


def gained(x: jax.Array, gain: jax.Array, *, eps: float) -> jax.Array:
    return reference.find("rms_norm")(x, gain[0], eps=eps)


# The op, its scalars, its operands; the reference where it is not called in the same way.
CASES: list[tuple[str, dict[str, Any], list[tuple], Callable | None]] = [
    ("softmax", {}, [("B", 5, 24)], None),
    ("mask", {"used": 130}, [("B", 200)], None),
    *[("rms_norm", {"eps": 1e-5}, [("B", *shape), (1, shape[-1])], gained) for shape in [(576,), (16, 128), (6, 24)]],
    *[("l2_norm", {"eps": 1e-6}, [("B", *shape)], None) for shape in [(2, 128), (2, 16), (40,)]],
    *[("heads", {"n": n}, [("B", n * w)], None) for n, w in [(9, 64), (3, 512), (6, 24), (1, 256)]],
    *[("flat", {}, [("B", n, w)], partial(reference.find("flat"), lead=1)) for n, w in [(9, 64), (6, 128), (5, 8)]],
    ("flat", {}, [("B", 40)], partial(reference.find("flat"), lead=1)),
    ("split", {"width": (256, 256)}, [("B", 3, 512)], None),
    ("split", {"width": (8, 24, 1)}, [("B", 33)], None),
    ("concat", {}, [("B", 6, 128), ("B", 6, 64)], None),
    ("concat", {}, [("B", 16), (1, 8)], None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "scalars", "shapes", "other"), CASES, ids=[f"{c[0]}{i}" for i, c in enumerate(CASES)])
def test_op(name: str, scalars: dict[str, Any], shapes: list[tuple], other: Callable | None) -> None:
    """The values are the reference's."""
    for b in (1, 3, 8):
        arguments = drawn(*kinds(b, *shapes))

        found = run(partial(ops.find(name), **scalars), *arguments)
        same(found, (other or reference.find(name))(*arguments, **scalars))


def test_elementwise() -> None:
    """Ops of one and of two operands, which broadcast; scalars are Python numbers."""
    one, two = "neg exp tanh sigmoid silu softplus f32".split(), "add sub mul div max min".split()

    def every(find, x, y):
        some = [find("add")(1, find("mul")(x, 0.25))]
        return some + [find(name)(x) for name in one] + [find(name)(x, y) for name in two]

    for b, *shape in [(1, 40), (3, 5, 24), (8, 200)]:
        arguments = drawn(*kinds(b, ("B", *shape), (1, shape[-1])))

        same(run(partial(every, ops.find), *arguments), every(reference.find, *arguments))


def test_powers() -> None:
    """Powers and roots of positive numbers."""

    def every(find, x, y):
        return [find("pow")(x, y), find("pow")(x, -0.5), find("pow")(x, 2), find("sqrt")(x)]

    arguments = [jnp.abs(a) + 0.1 for a in drawn(*kinds(3, ("B", 24), (1, 24)))]

    same(run(partial(every, ops.find), *arguments), every(reference.find, *arguments))


def test_gain_is_a_number() -> None:
    """A norm may have a number for its gain."""
    (x,) = drawn(*kinds(3, ("B", 40)))

    same(run(lambda x: ops.find("rms_norm")(x, 2.5, eps=1e-6), x), reference.find("rms_norm")(x, 2.5, eps=1e-6))


ROPES = [
    ((9, 64), {"theta": 1e5}),
    ((8, 128), {"theta": 1e6}),
    ((3, 256), {"theta": 1e7, "width": 64}),
    ((2, 256), {"theta": 1e4, "width": 256}),
    ((6, 32), {"theta": 1e7, "width": 8.0}),
    ((2, 24), {"theta": 1e4, "scaling": 4}),
    ((24,), {"theta": 1e4, "width": 2}),
]
POSITIONS = [100000, 0, 7, 131071, 4095, 1, 65537, 31]


@pytest.mark.parametrize(("shape", "scalars"), ROPES)
@pytest.mark.parametrize("pairs", [0, 1])
def test_rope(shape: tuple[int, ...], scalars: dict[str, Any], pairs: int) -> None:
    """Rows at positions of their own turn as the reference's do, whichever channels they pair."""
    for b in (1, 3, 8):
        (x,), position = drawn(*kinds(b, ("B", *shape))), jnp.asarray(POSITIONS[:b], int32)[:, None]
        found = run(partial(ops.find("rope"), pairs=pairs, **scalars), x, position)

        same(found, reference.find("rope")(x[:, None], position, pairs=pairs, **scalars)[:, 0])


def test_rope_far_out() -> None:
    """Late positions turn by the exact sine and cosine of their f32 angle."""
    n, theta = 128, 1e6
    (x,), position = drawn(*kinds(2, ("B", 2, n))), np.asarray([[100000], [131071]], np.int32)
    angle = position.astype(np.float32) * np.asarray(theta ** (-np.arange(0, n, 2) / n), np.float32)
    cos, sin = (turn(angle.astype(np.float64))[:, None] for turn in (np.cos, np.sin))
    a, b = np.split(np.asarray(x, np.float64), 2, axis=-1)
    found = run(partial(ops.find("rope"), theta=theta), x, jnp.asarray(position))

    np.testing.assert_allclose(found, np.concatenate([a * cos - b * sin, b * cos + a * sin], -1), rtol=0, atol=1e-5)


def test_turns_serve_every_head() -> None:
    """What one position turns by is found once and used by queries and keys alike."""
    (q, k), position = drawn(*kinds(3, ("B", 6, 256), ("B", 1, 256))), jnp.asarray([[5], [0], [90000]], int32)

    def both(q, k, position):
        turn = turns(position, 256, theta=1e7, width=64)
        return [rotated(x, turn, width=64) for x in (q, k)]

    rope = partial(reference.find("rope"), theta=1e7, width=64)
    same(run(both, q, k, position), [rope(x[:, None], position)[:, 0] for x in (q, k)])


@pytest.mark.parametrize("dtype", [bf16, f32])
@pytest.mark.parametrize(("c", "n"), [(256, 4), (40, 4), (24, 2)])
def test_causal_conv(c: int, n: int, dtype: Any) -> None:
    """The value sees its own input exactly, earlier ones as the state keeps them, bit for bit as the reference does."""
    for b in (1, 3, 8):
        x, taps, state = drawn(*kinds(b, ("B", c), (n, c), ("B", n - 1, c, dtype)))
        found, after = run(ops.find("causal_conv"), x, taps, state)
        lengths = jnp.ones(b, int32)
        expected, kept = reference.find("causal_conv")(x[:, None], taps.T, state, lengths=lengths)

        same(found, expected[:, 0])
        assert after.dtype == dtype
        np.testing.assert_array_equal(after.astype(f32), kept.astype(f32))


@pytest.mark.parametrize("by_reference", [False, True])
@pytest.mark.parametrize("n", [40, 1024, 1500, 5000])
def test_argmax(n: int, by_reference: bool) -> None:
    """The largest wherever it stands, the lowest index on ties, in rows that are all masked or no numbers the first."""
    for b in (1, 3, 8):
        x = np.array(drawn(*kinds(b, ("B", n)))[0])
        for row in range(b):
            x[row, [n - 1, n - 1 - row, (row * 977) % n]] = 100
        x[b // 2, :] = -np.inf if b < 8 else np.nan
        found = run(ops.find("argmax"), jnp.asarray(x), by_reference=by_reference)

        assert (found.shape, found.dtype) == ((b, 1), int32)
        np.testing.assert_array_equal(found[:, 0], reference.find("argmax")(x))


def test_find(monkeypatch: pytest.MonkeyPatch) -> None:
    """Built-in ops go before those of installed packages, and an unknown name is a `KeyError`."""
    points = [metadata.EntryPoint(name, "math:cbrt", "mks.pallas") for name in ("cube_root", "exp")]
    monkeypatch.setattr(metadata, "entry_points", lambda group: points if group == "mks.pallas" else [])
    ops._installed.cache_clear()
    try:
        assert ops.find("cube_root")(27.0) == pytest.approx(3)
        assert ops.find("exp") is jnp.exp
        with pytest.raises(KeyError):
            ops.find("fourth_root")
    finally:
        ops._installed.cache_clear()


def to_compile(b: int) -> list[tuple[str, Callable, Kinds]]:
    """Ops at the shapes of SmolLM2, Qwen3, one of eight cores of Qwen3.8, and of small models."""
    find = ops.find
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
        *[("argmax", {}, [("B", n)]) for n in (256, 31040, 49152, 151936)],
    ]  # fmt: skip
    return [(f"{name} {shapes}", partial(find(name), **scalars), kinds(b, *shapes)) for name, scalars, shapes in every]


def compiles(target: str, b: int) -> None:
    """Raises where the compiler refuses one."""
    for name, op, arguments in to_compile(b):
        for by_reference in {False, name.startswith("argmax")}:
            call = kernel(op, *arguments, by_reference=by_reference)
            assert "tpu_custom_call" in compile_for(target, call, arguments), name


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
