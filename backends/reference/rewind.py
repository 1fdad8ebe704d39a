"""How a row with recurrent states goes on after a token in the middle of its last step.

Entries of later tokens in a cache are not seen, and are overwritten; a state has all tokens in it. So what each row's
states were before its last step is kept, and the tokens that stay are read once more.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .states import Arrays, Room

type Array = np.ndarray[Any, Any]


@jax.jit
def _chosen(rows: jax.Array, there: Arrays, elsewhere: Arrays) -> Arrays:
    """Arrays `[layers, rows, ...]`, from `there` in the rows that are true."""

    def pick(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(rows.reshape(1, -1, *(1,) * (a.ndim - 2)), a, b)

    return jax.tree.map(pick, there, elsewhere)


class LastSteps:
    """Each row's last step: ids int32 `[rows, tokens]`, their first position int32 `[rows]`, and the states before."""

    def __init__(self, room: Room, rows: int, tokens: int) -> None:
        stores = [store for found in room.stores.values() for store in found]
        self._keys = [store.key for store in stores if store.axis is None]
        self.ids, self.start = np.zeros((rows, tokens), np.int32), np.zeros(rows, np.int32)
        self._before: Arrays = {}

    def compile(self, states: Arrays) -> None:
        """Compile what later calls need."""
        if self._keys:
            now = {key: states[key] for key in self._keys}
            _chosen(np.zeros(len(self.start), bool), now, now)

    def remember(self, states: Arrays, ids: Array, start: Array, counts: Array) -> None:
        """A step begins for the rows with `counts`; `states` are those before it."""
        if self._keys:
            given, now = counts > 0, {key: states[key] for key in self._keys}
            self._before = _chosen(given, now, self._before or now)
            self.ids, self.start = np.where(given[:, None], ids, self.ids), np.where(given, start, self.start)

    def before(self, states: Arrays, rows: Array) -> Arrays | None:
        """`states`, but as they were before the last steps of some of the rows; None where nothing is to be undone."""
        if not self._keys or not rows.any():
            return None
        return states | _chosen(rows, self._before, {key: states[key] for key in self._keys})
