"""Ops that keep a state, against loops over tokens in numpy."""

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from mks.backends.reference import ops

RNG = np.random.default_rng(3)
LENGTHS = np.array([5, 0, 3], np.int32)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def conv(x, taps, state):
    """Token by token; the state is a list of inputs, oldest first."""
    out = []
    for token in x:
        window = [*state, token]
        out.append(sum(np.asarray(v, np.float32) * taps[:, i] for i, v in enumerate(window)))
        state = [*state[1:], token.astype(state.dtype)] if len(state) else state
        state = np.asarray(state)
    return np.stack(out), state


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_causal_conv(dtype):
    """Each row goes as far as its length; earlier inputs are seen as the state keeps them."""
    x, taps, state = normal(3, 5, 6), normal(6, 4), normal(3, 3, 6).astype(dtype)
    found, after = ops.table["causal_conv"](*map(jnp.asarray, (x, taps, state)), lengths=jnp.asarray(LENGTHS))
    for row, length in enumerate(LENGTHS):
        wanted, _ = conv(x[row], taps, state[row])
        np.testing.assert_allclose(np.asarray(found)[row], wanted, rtol=1e-5, atol=1e-5)
        kept = conv(x[row, :length], taps, state[row])[1] if length else state[row]
        np.testing.assert_array_equal(np.asarray(after)[row], kept)


def test_causal_conv_in_pieces():
    """A pass of several tokens is to the bit what passes of one token are."""
    x, taps, state = normal(1, 5, 6), normal(6, 4), np.zeros((1, 3, 6), ml_dtypes.bfloat16)
    run, one = ops.table["causal_conv"], jnp.ones(1, jnp.int32)
    whole, end = run(*map(jnp.asarray, (x, taps, state)), lengths=5 * one)
    kept = jnp.asarray(state)
    for t in range(5):
        found, kept = run(jnp.asarray(x[:, t : t + 1]), jnp.asarray(taps), kept, lengths=one)
        np.testing.assert_array_equal(found[:, 0], whole[:, t])
    np.testing.assert_array_equal(kept, end)


def delta(q, k, v, decay, rate, S):
    """One head, token by token, in f64."""
    S, out = S.astype(np.float64), []
    for t in range(len(v)):
        S = np.diag(np.exp(np.broadcast_to(decay[t], k[t].shape))) @ S
        S = S + np.outer(k[t], rate[t] * (v[t] - S.T @ k[t]))
        out.append(S.T @ q[t])
    return np.stack(out), S


@pytest.mark.parametrize("by_channel", [False, True])
def test_delta_rule(by_channel):
    """Decay by head or by channel, k heads shared by consecutive v heads, rows of different lengths."""
    b, t, kh, h, key, val = 3, 5, 2, 4, 6, 7
    q, k, v = normal(b, t, kh, key), normal(b, t, kh, key) / 3, normal(b, t, h, val)
    decay = -np.abs(normal(*((b, t, h, key) if by_channel else (b, t, h))))
    rate, S = RNG.random((b, t, h)).astype(np.float32), normal(b, h, key, val)
    found, after = ops.table["delta_rule"](*map(jnp.asarray, (q, k, v, decay, rate, S)), lengths=jnp.asarray(LENGTHS))
    for row, length in enumerate(LENGTHS):
        for head in range(h):
            of = head // (h // kh)
            args = [q[row, :, of], k[row, :, of], v[row, :, head], decay[row, :, head], rate[row, :, head]]
            wanted, _ = delta(*args, S[row, head])
            np.testing.assert_allclose(np.asarray(found)[row, :length, head], wanted[:length], rtol=1e-4, atol=1e-4)
            if length:
                kept = delta(*(a[:length] for a in args), S[row, head])[1]
                np.testing.assert_allclose(np.asarray(after)[row, head], kept, rtol=1e-4, atol=1e-4)
            else:
                np.testing.assert_array_equal(np.asarray(after)[row, head], S[row, head])
