"""A matrix times vectors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax
import jax.numpy as jnp
from jax import lax

from ..caches import Index
from .sums import sums

# Passes of up to so many tokens are one loop over the layers without calls of a library of matrix products.
FEW = 16
_most: ContextVar[int] = ContextVar("most", default=FEW)
# So many vectors are multiplied in one pass over the matrix.
_TOGETHER = 8
# A larger matrix is read in blocks of up to so many rows.
_BLOCK = 4096


def few(tokens: int) -> bool:
    """Whether a pass of so many tokens does without matrix products."""
    return tokens <= _most.get()


@contextmanager
def matrix_products() -> Iterator[None]:
    """What is traced meanwhile uses matrix products for passes of any length, as compilers for accelerators like it."""
    token = _most.set(0)
    try:
        yield
    finally:
        _most.reset(token)


def matmul(w: jax.Array, x: jax.Array) -> jax.Array:
    """`w [out, in]` and `x [..., in]`, f32 or bf16 each, to f32 `[..., out]`; products are summed in f32."""
    rows = x.reshape(-1, x.shape[-1])
    if not few(len(rows)):
        out = lax.dot_general(rows, w, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)
    else:
        # Without the barrier what makes `x` would be computed again for every row of the matrix.
        rows = lax.optimization_barrier(rows.astype(jnp.float32))
        parts = [rows[i : i + _TOGETHER] for i in range(0, len(rows), _TOGETHER)]
        out = jnp.concatenate([_by_blocks(w, part) for part in parts])
    return out.reshape(*x.shape[:-1], w.shape[0])


def _by_blocks(w: jax.Array, x: jax.Array) -> jax.Array:
    """A loop over blocks of a large matrix keeps the program in one piece, which XLA runs without hand-overs."""
    out = w.shape[0]
    count = next((n for n in range(-(-out // _BLOCK), 257) if out % n == 0), 1)
    if count == 1:
        return _few(w, x)
    blocks = w.reshape(count, out // count, -1)

    def block(i: Index, carry: jax.Array) -> jax.Array:
        part = _few(lax.dynamic_index_in_dim(blocks, i, keepdims=False), x)
        return lax.dynamic_update_slice(carry, part, (0, i * (out // count)))

    return lax.fori_loop(0, count, block, jnp.zeros((len(x), out)))


def _few(w: jax.Array, x: jax.Array) -> jax.Array:
    """One pass over `w` for all of `x [n, in]`; several of its rows at once share the loads of `x`.

    How many never depends on `w`, as the order of a sum does on it: weights side by side give the bits they give alone.
    """
    out, strands = w.shape[0], _strands(len(x))
    part = -(-out // strands)
    starts = [max(0, min(i * part, out - part)) for i in range(strands)]
    result = sums([w[at : at + part].astype(jnp.float32) * row for row in x for at in starts])
    own = [max(0, min(part, out - i * part)) for i in range(strands)]  # the last strands may overlap those before
    rows = [[result[r * strands + i][part - own[i] :] for i in range(strands)] for r in range(len(x))]
    return jnp.stack([jnp.concatenate(row) for row in rows])


def _strands(count: int) -> int:
    """How many parts of a matrix are read side by side for `count` vectors; each vector has a sum in each part.

    From eight sums on the compiler does not split them any further: then their order, and so every bit of a result, is
    the same however many vectors are multiplied together.
    """
    return 8 if count == 1 else 4 if count <= 4 else 3
