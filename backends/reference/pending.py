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
def _finite(logits: jax.Array) -> jax.Array:
    return jnp.isfinite(logits.max(axis=-1))


@jax.jit
def _row(logits: jax.Array, row: jax.Array) -> jax.Array:
    return lax.dynamic_index_in_dim(logits, row, keepdims=False)


def on_host(array: jax.Array) -> bool:
    """Whether the device's memory is the host's: then nothing needs to cross, and numpy is quicker than XLA."""
    return all(device.platform == "cpu" for device in array.devices())


@define
class _Fetched:
    """Implements `dsl.decoder.PendingStep`: what is fetched are arrays of rows `first ..` of `rows`, still being made.

    `counts` are how many tokens each row was given, `asked` the rows whose logits are wanted: in `whole`, which has
    those of all of the step's rows, or one by one in `each`. The likeliest `ids`, and whether logits are `finite`, are
    found in `whole` where they are not given.
    """

    rows: int
    first: int
    counts: Sequence[int]
    asked: Sequence[int]
    ids: jax.Array | None
    finite: jax.Array | None
    each: dict[int, jax.Array]
    whole: jax.Array | None
    result: StepResult | None = None

    def wait(self) -> StepResult:
        """What the step gives."""
        if self.result is None:
            self.result = self._result()
        return self.result

    def _result(self) -> StepResult:
        ids, finite = (None if array is None else np.asarray(array) for array in (self.ids, self.finite))
        logits = {row: np.asarray(array) for row, array in self.each.items()}
        if self.whole is not None:
            whole = np.asarray(self.whole)
            logits = {row: whole[row - self.first] for row in self.asked}
            if ids is None and finite is None:
                ids = whole.argmax(axis=-1).astype(np.int32)
                finite = np.isfinite(np.take_along_axis(whole, ids[..., None], -1)[..., 0])
            elif finite is None:
                finite = np.isfinite(whole.max(axis=-1))
        assert ids is not None
        assert finite is not None
        logits = {row: array[: self.counts[row]] for row, array in logits.items()}
        return StepResult(self._of_all(ids), self._of_all(finite), logits)

    def _of_all(self, array: Array) -> Array:
        if len(array) == self.rows:
            return array
        whole = np.zeros((self.rows, *array.shape[1:]), array.dtype)
        whole[self.first : self.first + len(array)] = array
        return whole


def fetch(
    rows: int, first: int, counts: Array, logits: jax.Array, asked: Collection[int], ids: jax.Array | None = None
) -> _Fetched:
    """What is waited for of a step over rows `first ..` of `rows`, with logits f32 `[width, tokens, vocab]`.

    `counts` `[rows]` are how many tokens each row was given, `asked` the rows whose logits come to the host; `ids` are
    the likeliest ones `[width, tokens]`, where the step itself has found them.
    """
    wanted, given = sorted(row for row in set(asked) if counts[row]), counts.tolist()
    if on_host(logits):
        return _Fetched(rows, first, given, wanted, ids, None, {}, logits)
    found, finite = likeliest(logits) if ids is None else (ids, _finite(logits))
    # One copy of all is sooner made than a copy of each.
    whole = logits if len(wanted) == len(logits) else None
    each = {} if whole is not None else {row: _row(logits, np.int32(row - first)) for row in wanted}
    fetched = _Fetched(rows, first, given, wanted, found, finite, each, whole)
    for array in (fetched.ids, fetched.finite, *each.values(), whole):
        if array is not None:
            array.copy_to_host_async()
    return fetched


def compile_fetch(logits: jax.Array, *, with_ids: bool = False) -> None:
    """Compile all that `fetch` can need for logits of this shape, with ids that the step has found or without."""
    if not on_host(logits):
        _finite(logits) if with_ids else likeliest(logits)
        _row(logits, np.int32(0))
