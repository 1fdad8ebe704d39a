"""A step under way on the device: ids come to the host, and logits of only those rows that ask for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from attrs import define
from jax import lax

from ...dsl.decoder import StepResult

type Array = np.ndarray[Any, Any]


@jax.jit
def likeliest(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Of logits `[..., vocab]` the ids of the largest, of equal ones the lowest, and whether they are numbers."""
    peak = logits.max(axis=-1)
    ids = lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
    return jnp.where(logits == peak[..., None], ids, logits.shape[-1] - 1).min(axis=-1), jnp.isfinite(peak)


@jax.jit
def _row(logits: jax.Array, row: jax.Array) -> jax.Array:
    return lax.dynamic_index_in_dim(logits, row, keepdims=False)


@define
class _Fetched:
    """Implements `dsl.decoder.PendingStep`: `ids`, `finite` and `logits` by row are arrays that are being made.

    They are of rows `first ..` of `rows`; `counts` says how many tokens each row was given.
    """

    rows: int
    first: int
    counts: Sequence[int]
    ids: jax.Array
    finite: jax.Array
    logits: dict[int, jax.Array]
    every: jax.Array | None
    result: StepResult | None = None

    def wait(self) -> StepResult:
        """What the step gives."""
        if self.result is None:
            logits = {row: np.asarray(array) for row, array in self.logits.items()}
            if self.every is not None:
                logits |= {self.first + i: array for i, array in enumerate(np.asarray(self.every))}
            logits = {row: array[: self.counts[row]] for row, array in logits.items() if self.counts[row]}
            self.result = StepResult(self._of_all(self.ids), self._of_all(self.finite), logits)
        return self.result

    def _of_all(self, values: jax.Array) -> Array:
        found = np.asarray(values)
        if len(found) == self.rows:
            return found
        whole = np.zeros((self.rows, *found.shape[1:]), found.dtype)
        whole[self.first : self.first + len(found)] = found
        return whole


def fetch(rows: int, first: int, counts: Array, logits: jax.Array, asked: Collection[int],
          ids: jax.Array | None = None) -> _Fetched:  # fmt: skip
    """What is waited for of a step over rows `first ..` of `rows`, with logits f32 `[width, tokens, vocab]`.

    `counts` `[rows]` are how many tokens each row was given, `asked` the rows whose logits come to the host; `ids` are
    the likeliest ones `[width, tokens]`, where the step itself has found them.
    """
    best, finite = likeliest(logits)
    wanted = sorted(row for row in set(asked) if counts[row])
    # One copy of all is sooner made than a copy of each.
    every = logits if len(wanted) == len(logits) else None
    each = {} if every is not None else {row: _row(logits, np.int32(row - first)) for row in wanted}
    found = _Fetched(rows, first, counts.tolist(), best if ids is None else ids, finite, each, every)
    for array in (found.ids, found.finite, *each.values(), *(() if every is None else (every,))):
        array.copy_to_host_async()
    return found


def compile_fetch(logits: jax.Array) -> None:
    """Compile all that `fetch` can need for logits of this shape."""
    likeliest(logits)
    if len(logits) > 1:
        _row(logits, np.int32(0))
