"""What statements see while they are traced: inputs, names, weights, states."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from attrs import Factory, define, frozen
from jax import lax

from ...dsl.model import ir as m
from ...dsl.model.instance import Instance
from . import caches
from .caches import Cache, Index
from .states import Arrays, Room, Store
from .weights import Weights, slot

type Number = bool | int | float
# A value has leading axes [rows, tokens]; a weight, or what depends on weights alone, has not.
type Value = Any


@frozen
class Pass:
    """Consecutive tokens of some rows: `token` and `position` are `[B, T]`, `lengths` `[B]` says how many are real.

    The rows are `row ..` of the states' rows.
    """

    instance: Instance
    weights: Weights
    room: Room
    token: jax.Array
    position: jax.Array
    lengths: jax.Array
    row: Index

    @property
    def live(self) -> jax.Array:
        """Which tokens are real, `[B, T]`."""
        return jnp.arange(self.token.shape[1]) < self.lengths[:, None]


@define
class Frame:
    """A part or step at work. `layer` is one of `layers`; `row` is the token at hand inside a loop over rows.

    `products` remembers what weights that share an operand gave: array, operand, result.
    """

    at: Pass
    names: dict[str, Value]
    states: Arrays
    buffers: Arrays
    part: str | None = None
    layers: tuple[int, ...] = ()
    layer: Index = 0
    row: int | None = None
    products: list[tuple[str, Value, jax.Array]] = Factory(list)

    def scalar(self, static: m.Static) -> Number | jax.Array:
        """A scalar's value; traced, from a table, where it differs over the layers or rows that this trace is for."""
        instance, tokens = self.at.instance, self.at.token.shape[1]
        layers = self.layers if "layer" in static.depends else (None,)
        rows = (None,) if "row" not in static.depends else range(tokens) if self.row is None else (self.row,)
        values = [[_plain(instance.value(static, layer, row)) for row in rows] for layer in layers]
        if all(value == values[0][0] for each in values for value in each):
            return values[0][0]
        known = np.asarray(values)
        table = jnp.asarray(known, {"b": np.bool_, "i": np.int32, "f": np.float32}[known.dtype.kind])
        by_row = table[slot(self.layers, self.layers, self.layer) if len(layers) > 1 else 0]
        return by_row[None] if len(rows) > 1 else by_row[0]

    def weight(self, name: str) -> jax.Array:
        """A weight at this layer, as it is stored."""
        return self.at.weights.get(name, self.layers, self.layer)

    def _store(self, state: str) -> tuple[Store, Index]:
        store = self.at.room.of(state, self.layers[0] if self.layers else 0)
        return store, 0 if store.layers is None else slot(store.layers, self.layers, self.layer)

    def cache(self, state: str) -> Cache:
        """A cache at this layer."""
        store, layer = self._store(state)
        assert store.axis is not None
        return Cache(self.states[store.key], layer, self.at.row, store.axis, store.last)

    def state(self, state: str) -> jax.Array:
        """A state at this layer, `[B, ...]`; zero for rows that begin."""
        store, layer = self._store(state)
        size = (1, self.at.token.shape[0], *store.shape[2:])
        entry = lax.dynamic_slice(self.states[store.key], (layer, self.at.row, *(0,) * (len(size) - 2)), size)[0]
        # Read now: were it read where the new state is computed, XLA would copy the whole array for the write.
        entry = lax.optimization_barrier(entry)
        begins = (self.at.position[:, 0] == 0) & (self.at.lengths > 0)
        return jnp.where(begins.reshape(-1, *(1,) * (entry.ndim - 1)), jnp.zeros_like(entry), entry)

    def keep(self, state: str, value: jax.Array) -> None:
        """A state's new value at this layer, `[B, ...]`."""
        store, layer = self._store(state)
        whole = self.states[store.key]
        at = (layer, self.at.row, *(0,) * (value.ndim - 1))
        self.states = {**self.states, store.key: lax.dynamic_update_slice(whole, value[None].astype(whole.dtype), at)}

    def write(self, state: str, entries: jax.Array, guard: Number | jax.Array) -> None:
        """Entries `[B, T, ...]` of the pass's tokens into a cache at this layer."""
        store, layer = self._store(state)
        assert store.axis is not None
        entries = jnp.broadcast_to(entries, (*self.at.token.shape, *entries.shape[-(len(store.shape) - 3) :]))
        written = caches.write(
            self.states[store.key], layer, self.at.row, store.axis, entries, self.at.position, self.at.live & guard
        )
        self.states = {**self.states, store.key: written}


def _plain(value: Any) -> Number:
    return float(value) if isinstance(value, Fraction) else value
