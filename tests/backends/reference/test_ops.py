"""Each op that keeps nothing, against the same mathematics in numpy."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from mks.backends.reference import ops
from mks.backends.reference.ops.experts import experts
from mks.backends.reference.ops.route import Routes
from mks.dsl.model import ops as registry

RNG = np.random.default_rng(7)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def close(found, wanted, tolerance=1e-6):
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=tolerance, atol=tolerance)


def test_every_op_of_the_registry_is_here():
    """What a definition can call runs; `bf16` is a rounding, which is not the op's to do."""
    assert set(ops.table) == set(registry.table) - {"bf16"}


UNARY = {
    "neg": lambda x: -x,
    "exp": np.exp,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.log(1 + np.exp(x)),
    "sqrt": lambda x: np.sqrt(x),
    "f32": lambda x: x,
    "softmax": lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    """Elementwise ops and softmax, in f64."""
    x = normal(2, 3, 5)
    x = np.abs(x) if name == "sqrt" else x
    close(ops.find(name)(jnp.asarray(x)), UNARY[name](x.astype(np.float64)), 2e-6)


def test_softplus_does_not_overflow():
    """Large inputs come out as they are."""
    close(ops.table["softplus"](jnp.float32(200.0)), 200.0)


BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum}


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    """Operands broadcast."""
    a, b = normal(2, 3, 5), normal(5)
    close(ops.find(name)(jnp.asarray(a), jnp.asarray(b)), BINARY[name](a, b))


def test_pow():
    """A positive base, any exponent."""
    a, b = np.abs(normal(4)) + 0.1, normal(4)
    close(ops.table["pow"](jnp.asarray(a), jnp.asarray(b)), a**b, 1e-5)


def test_mask():
    """What is not used can never be chosen."""
    x = normal(2, 6)
    found = np.asarray(ops.table["mask"](jnp.asarray(x), used=4))
    np.testing.assert_array_equal(found[:, :4], x[:, :4])
    assert np.isneginf(found[:, 4:]).all()


def test_axes():
    """`heads`, `flat`, `split` and `concat` move no number."""
    x = normal(2, 3, 12)
    heads = ops.table["heads"](jnp.asarray(x), n=4)
    assert heads.shape == (2, 3, 4, 3)
    np.testing.assert_array_equal(ops.table["flat"](heads, lead=2), x)
    a, b, c = ops.table["split"](jnp.asarray(x), width=(5, 4, 3))
    np.testing.assert_array_equal(b, x[..., 5:9])
    np.testing.assert_array_equal(ops.table["concat"](ops.table["concat"](a, b), c), x)
    assert ops.table["concat"](a, jnp.ones(2)).shape == (2, 3, 7)


def test_index():
    """Rows of a table; an index beyond its end takes the last."""
    table, i = normal(5, 3), np.array([[0, 4], [2, 9]], np.int32)
    np.testing.assert_array_equal(ops.table["index"](jnp.asarray(table), jnp.asarray(i)), table[np.minimum(i, 4)])


def test_argmax():
    """The lowest index on ties."""
    x = np.array([[1, 3, 3], [0, 0, 0]], np.float32)
    np.testing.assert_array_equal(ops.table["argmax"](jnp.asarray(x)), [1, 0])


@pytest.mark.parametrize("rows", [(1, 1), (1, 2), (4, 1), (1, 9), (3, 7)])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_matmul(rows, dtype):
    """Products of f32 and of bf16 operands are summed in f32, for few and many vectors."""
    w, x = normal(70, 33).astype(dtype), normal(*rows, 33).astype(dtype)
    wanted = x.astype(np.float64) @ w.astype(np.float64).T
    found = ops.table["matmul"](jnp.asarray(w), jnp.asarray(x))
    assert found.dtype == jnp.float32
    close(found, wanted, 1e-5)


def test_norms():
    """`rms_norm` with a vector and a number as gain, `l2_norm`."""
    x, gain = normal(2, 3, 8), normal(8)
    wide = x.astype(np.float64)
    root = np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-3)
    close(ops.table["rms_norm"](jnp.asarray(x), jnp.asarray(gain), eps=1e-3), wide / root * gain, 2e-6)
    close(ops.table["rms_norm"](jnp.asarray(x), 2, eps=1e-3), wide / root * 2, 2e-6)
    length = np.sqrt((wide**2).sum(-1, keepdims=True) + 1e-3)
    close(ops.table["l2_norm"](jnp.asarray(x), eps=1e-3), wide / length, 2e-6)


@pytest.mark.parametrize(("width", "pairs", "scaling"), [(None, 0, 1), (6, 0, 1), (6, 1, 2), (None, 1, 1)])
def test_rope(width, pairs, scaling):
    """A rotation in planes of channels, as complex numbers."""
    x, position = normal(2, 3, 4, 10), np.array([[0, 1, 2], [7, 8, 900]], np.int32)
    n = width or 10
    first, second = (np.arange(0, n, 2), np.arange(1, n, 2)) if pairs else (np.arange(n // 2), np.arange(n // 2, n))
    plane = x[..., first] + 1j * x[..., second]
    turned = plane * np.exp(1j * position[..., None, None] / scaling * 100.0 ** (-np.arange(0, n, 2) / n))
    wanted = x.copy()
    wanted[..., first], wanted[..., second] = turned.real, turned.imag
    found = ops.table["rope"](
        jnp.asarray(x), jnp.asarray(position), theta=100.0, width=width, pairs=pairs, scaling=scaling
    )
    close(found, wanted, 3e-4)
    np.testing.assert_array_equal(found[..., n:], x[..., n:])


def test_route():
    """The largest of score + bias; weights from the scores alone; ascending ids."""
    score, bias = RNG.random((2, 3, 12)).astype(np.float32), normal(12)
    found = ops.table["route"](jnp.asarray(score), jnp.asarray(bias), top=4, eps=1e-3, scale=2.5)
    wanted = np.sort(np.argsort(-(score + bias), axis=-1)[..., :4], axis=-1)
    np.testing.assert_array_equal(found.ids, wanted)
    chosen = np.take_along_axis(score, wanted, axis=-1)
    close(found.weights, chosen / (chosen.sum(-1, keepdims=True) + 1e-3) * 2.5, 2e-6)


def test_route_takes_the_lowest_on_ties():
    """Equal scores are chosen by index."""
    score = jnp.asarray([[[0.5, 0.9, 0.5, 0.5, 0.9]]])
    np.testing.assert_array_equal(ops.table["route"](score, 0, top=3).ids, [[[0, 1, 4]]])


def test_route_by_groups():
    """Only members of the groups whose best two sum to most take part."""
    score = jnp.asarray([[[0.9, 0.1, 0.6, 0.5, 0.8, 0.0]]])
    found = ops.table["route"](score, 0, top=2, groups=3, keep=1)
    np.testing.assert_array_equal(found.ids, [[[2, 3]]])


@pytest.mark.parametrize("tokens", [(2, 1), (1, 20)])
def test_experts(tokens):
    """The weighted sum of each token's experts, for few tokens and for many."""
    weights, z = normal(6, 5, 4), normal(*tokens, 4)
    ids = np.sort(np.stack([RNG.permutation(6)[:3] for _ in range(np.prod(tokens))]), -1).reshape(*tokens, 3)
    share = normal(*tokens, 3)
    wanted = np.einsum("btk,btkoi,bti->bto", share, weights[ids], z)
    w, x = jnp.asarray(weights), jnp.asarray(z)
    found = experts(
        lambda e, n: w[e] @ x.reshape(-1, 4)[n],
        lambda e: x @ w[e].T,
        Routes(jnp.asarray(ids, jnp.int32), jnp.asarray(share)),
        6,
        5,
    )
    close(found, wanted, 1e-5)


def test_mix():
    """A softmax over banks and stream, scored by the norm's product with `folded`; unused banks are not seen."""
    banks, x, folded = normal(2, 1, 3, 8), normal(2, 1, 8), normal(8)

    def wanted(banks):
        every = np.concatenate([banks, x[..., None, :]], -2).astype(np.float64)
        score = (every / np.sqrt((every**2).mean(-1, keepdims=True) + 1e-5)) @ folded
        weight = np.exp(score) / np.exp(score).sum(-1, keepdims=True)
        return (weight[..., None] * every).sum(-2)

    mix = ops.table["mix"]
    close(mix(*map(jnp.asarray, (banks, x, folded)), eps=1e-5), wanted(banks), 2e-6)
    used = jnp.asarray([True, True, False])
    close(mix(*map(jnp.asarray, (banks, x, folded)), eps=1e-5, used=used), wanted(banks[:, :, :2]), 2e-6)
    close(mix(*map(jnp.asarray, (banks[:, :, :0], x, folded)), eps=1e-5), x, 2e-6)
