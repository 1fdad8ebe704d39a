"""Attend ops against softmax over all positions in numpy, caches as lists."""

import jax.numpy as jnp
import numpy as np
import pytest

from mks.backends.reference import caches, ops
from mks.backends.reference.caches import TILE, Cache

RNG = np.random.default_rng(11)
LAYERS, ROWS, FIRST = 2, 4, 1


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Filled:
    """A cache written position by position, and what was written, `[rows, positions, *entry]`."""

    def __init__(self, entry, op, parameter, size, last=None):
        self.axis, self.last = ops.position_axes[op][parameter], last
        shape = (LAYERS, ROWS, *entry[: self.axis], size, *entry[self.axis :])
        self.data, self.entry = jnp.asarray(normal(*shape)), entry
        self.history = [[] for _ in range(ROWS)]

    def write(self, entries, start, lengths):
        """`entries [B, T, *entry]` for rows `FIRST ..`."""
        position = jnp.asarray(start)[:, None] + jnp.arange(entries.shape[1])
        live = jnp.arange(entries.shape[1]) < jnp.asarray(lengths)[:, None]
        self.data = caches.write(self.data, 1, FIRST, self.axis, jnp.asarray(entries), position, live)
        for b, n in enumerate(lengths):
            self.history[FIRST + b] += list(entries[b, :n])

    def view(self):
        return Cache(self.data, 1, FIRST, self.axis, self.last)

    def seen(self, row, position):
        first = 0 if self.last is None else max(0, position - self.last + 1)
        return np.stack(self.history[FIRST + row][first : position + 1])


def passes(write, check, counts):
    """Rows 0 and 1 of the pass grow by different numbers of tokens; the others' caches are left alone."""
    start = np.zeros(2, np.int32)
    for lengths in counts:
        t = max(lengths)
        write(start, lengths, t)
        check(start.copy(), np.asarray(lengths, np.int32), t)
        start = start + np.asarray(lengths, np.int32)


@pytest.mark.parametrize(
    ("size", "last", "counts"),
    [
        (2 * TILE, None, [(7, 3), (1, 1), (130, 0), (1, 1), (20, 70)]),
        (TILE, TILE - 20, [(21, 10), (21, 1), (1, 1), (1, 0), *[(21, 20)] * 13, (1, 21)]),  # a ring, wrapped twice
        (3 * TILE, 5, [(150, 270), (50, 1), (1, 1)]),
    ],
)
def test_attend(size, last, counts):
    """Rows at different positions, spans, windows and rings; a token sees exactly what it should."""
    h, kv, w, v = 6, 2, 4, 3
    keys, values = Filled((kv, w), "attend", "keys", size, last), Filled((kv, v), "attend", "values", size, last)

    def write(start, lengths, t):
        keys.write(normal(2, t, kv, w), start, lengths)
        values.write(normal(2, t, kv, v), start, lengths)

    def check(start, lengths, t):
        q = normal(2, t, h, w)
        position = start[:, None] + np.arange(t, dtype=np.int32)
        found = ops.table["attend"](
            jnp.asarray(q),
            keys.view(),
            values.view(),
            scale=0.7,
            position=jnp.asarray(position),
            lengths=jnp.asarray(lengths),
        )
        assert np.isfinite(np.asarray(found)).all()
        for b in range(2):
            for i in range(lengths[b]):
                k, u = (np.repeat(c.seen(b, start[b] + i), h // kv, axis=1) for c in (keys, values))
                weight = softmax(np.einsum("hw,shw->hs", q[b, i], k) * 0.7)
                wanted = np.einsum("hs,shv->hv", weight, u)
                np.testing.assert_allclose(np.asarray(found)[b, i], wanted, rtol=1e-4, atol=1e-5)

    passes(write, check, counts)


def test_write_leaves_the_rest_alone():
    """Only the live tokens' entries change, in their layer and row."""
    cache = Filled((2, 4), "attend", "keys", TILE)
    before, entries = np.asarray(cache.data), normal(2, 3, 2, 4)
    cache.write(entries, np.array([10, TILE - 2], np.int32), (2, 3))
    wanted = before.copy()
    for row, position, entry in ((1, 10, (0, 0)), (1, 11, (0, 1)), (2, -2, (1, 0)), (2, -1, (1, 1)), (2, 0, (1, 2))):
        wanted[1, row, :, position] = entries[entry]
    np.testing.assert_array_equal(cache.data, wanted)


def test_attend_latent():
    """Absorbed equals expanded: keys and values of every head built from the latents."""
    h, nope, c, v, rank = 3, 5, 2, 4, 6
    latent, common = (Filled((n,), "attend_latent", p, TILE) for n, p in ((rank, "latent"), (c, "common")))
    kv_b = normal(h * (nope + v), rank)

    def write(start, lengths, t):
        latent.write(normal(2, t, rank), start, lengths)
        common.write(normal(2, t, c), start, lengths)

    def check(start, lengths, t):
        q = normal(2, t, h, nope + c)
        position = start[:, None] + np.arange(t, dtype=np.int32)
        found = ops.table["attend_latent"](
            jnp.asarray(q),
            latent.view(),
            common.view(),
            jnp.asarray(kv_b),
            scale=0.4,
            position=jnp.asarray(position),
            lengths=jnp.asarray(lengths),
        )
        for b in range(2):
            for i in range(lengths[b]):
                expanded = (latent.seen(b, start[b] + i) @ kv_b.T).reshape(-1, h, nope + v)
                shared = np.repeat(common.seen(b, start[b] + i)[:, None], h, axis=1)
                k = np.concatenate([expanded[..., :nope], shared], -1)
                weight = softmax(np.einsum("hw,shw->hs", q[b, i], k) * 0.4)
                wanted = np.einsum("hs,shv->hv", weight, expanded[..., nope:])
                np.testing.assert_allclose(np.asarray(found)[b, i], wanted, rtol=1e-4, atol=1e-5)

    passes(write, check, [(7, 3), (1, 1), (20, 0), (1, 30)])


@pytest.mark.parametrize("causal", [True, False])
def test_attend_block(causal):
    """A block sees the kept positions before its first row, and of itself the rows up to each, or all."""
    h, kv, w, n, t, last = 4, 2, 4, 3, 5, 9
    keys, values = (Filled((kv, width), "attend_block", p, TILE, last) for width, p in ((w, "keys"), (n, "values")))
    for lengths in ((0, 6), (0, 20)):
        start = np.array([0, len(keys.history[2])], np.int32)
        k, v = normal(2, 20, kv, w), normal(2, 20, kv, n)
        keys.write(k, start, lengths)
        values.write(v, start, lengths)
    q, k, v = normal(2, t, h, w), normal(2, t, kv, w), normal(2, t, kv, n)
    position = np.array([[0], [26]], np.int32) + np.arange(t, dtype=np.int32)
    length = jnp.full(2, t)
    found = ops.table["attend_block"](
        *map(jnp.asarray, (q, k, v)),
        keys.view(),
        values.view(),
        scale=0.6,
        causal=causal,
        position=jnp.asarray(position),
        lengths=length,
    )
    for b, before in ((0, 0), (1, last)):
        for i in range(t):
            end = i + 1 if causal else t
            own_k, own_v = k[b, :end], v[b, :end]
            if before:
                own_k = np.concatenate([keys.seen(b, 25)[-last:], own_k])
                own_v = np.concatenate([values.seen(b, 25)[-last:], own_v])
            weight = softmax(np.einsum("hw,shw->hs", q[b, i], np.repeat(own_k, h // kv, 1)) * 0.6)
            wanted = np.einsum("hs,shv->hv", weight, np.repeat(own_v, h // kv, 1))
            np.testing.assert_allclose(np.asarray(found)[b, i], wanted, rtol=1e-4, atol=1e-5)
