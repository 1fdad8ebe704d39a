"""Rows kept outside of the decoder, and put back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from attrs import field, frozen
from jax import lax

from .caches import TILE
from .rounding import DTYPES
from .states import Arrays, Room, Store


@frozen
class SavedRow:
    """Implements `dsl.decoder.Saved`: `arrays` are a row's entries, those of caches cut to `size` positions.

    `context` is that of the decoder which held it.
    """

    length: int
    size: int
    context: int
    arrays: Mapping[str, np.ndarray[Any, Any]] = field(repr=False)

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return sum(array.nbytes for array in self.arrays.values())


class RowStore:
    """Takes rows out of a decoder's arrays and puts them back, in few compiled sizes."""

    def __init__(self, room: Room, context: int) -> None:
        self._stores = {store.key: store for stores in room.stores.values() for store in stores}
        self._context, sizes = context, [TILE]
        while sizes[-1] < context:
            sizes.append(2 * sizes[-1])
        self._sizes = (*sizes[:-1], -(-context // TILE) * TILE)
        # The row is an argument and not part of the program.
        self._take = jax.jit(self._cut, static_argnums=2)
        self._put = jax.jit(self._paste, donate_argnums=0)

    @property
    def cuts(self) -> bool:
        """Whether all that rows hold is entries by position, the older ones never overwritten."""
        return all(_by_position(store) for store in self._stores.values())

    def take(self, states: Arrays, row: int, length: int) -> SavedRow:
        """What `row` holds, `length` tokens."""
        size = next(size for size in self._sizes if size >= length)
        taken = self._take(states, jnp.int32(row), size)
        return SavedRow(length, size, self._context, {key: np.asarray(value) for key, value in taken.items()})

    def takes(self, saved: SavedRow) -> bool:
        """Whether a row was saved from arrays like these, for as long a context."""
        wanted = {
            key: (self._shape(store, saved.size), np.dtype(DTYPES[store.dtype])) for key, store in self._stores.items()
        }
        found = {key: (array.shape, array.dtype) for key, array in saved.arrays.items()}
        return saved.context == self._context and found == wanted

    def _shape(self, store: Store, size: int) -> tuple[int, ...]:
        """What is saved of a row; `size` is how many positions."""
        layers, _, *entry = store.shape
        if _by_position(store):
            entry[store.axis or 0] = size
        return (layers, 1, *entry)

    def put(self, states: Arrays, row: int, saved: SavedRow) -> Arrays:
        """`states`, which are used up, with `saved` in `row`."""
        return self._put(states, dict(saved.arrays), jnp.int32(row))

    def compile(self, states: Arrays) -> Arrays:
        """Compile for every size; gives back what was in `states`."""
        for size in self._sizes:
            states = self.put(states, 0, self.take(states, 0, size))
        return states

    def _cut(self, states: Arrays, row: jax.Array, size: int) -> Arrays:
        out = {}
        for key, store in self._stores.items():
            array = lax.dynamic_slice_in_dim(states[key], row, 1, axis=1)
            axis = 2 + (store.axis or 0)
            out[key] = lax.slice_in_dim(array, 0, size, axis=axis) if _by_position(store) else array
        return out

    def _paste(self, states: Arrays, saved: Arrays, row: jax.Array) -> Arrays:
        zero = jnp.int32(0)
        at = {key: (zero, row, *[zero] * (states[key].ndim - 2)) for key in saved}
        return {key: lax.dynamic_update_slice(states[key], saved[key], at[key]) for key in saved}


def _by_position(store: Store) -> bool:
    return store.axis is not None and store.last is None
