"""Weights as a step reads them: stacked over layers, those that multiply the same value side by side."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from attrs import field, frozen
from jax import lax

from .caches import Index
from .ops.index import index


@frozen
class Place:
    """A weight in an array: which one, and its first row and rows if it shares a layer's with others."""

    key: str
    layers: tuple[int, ...] | None
    start: int = 0
    rows: int | None = None


@frozen
class Weights:
    """`arrays` are `[layers, ...]`, or plain for the model's own; `places` says by name where a weight lies in them."""

    arrays: dict[str, jax.Array]
    places: Mapping[str, Place] = field(eq=False)

    def get(self, name: str, layers: tuple[int, ...], layer: Index) -> jax.Array:
        """A weight at a layer that is one of `layers`."""
        place = self.places[name]
        whole = self.whole(name, layers, layer)
        return whole if place.rows is None else whole[place.start : place.start + place.rows]

    def whole(self, name: str, layers: tuple[int, ...], layer: Index) -> jax.Array:
        """A weight at a layer with those that share its array."""
        place = self.places[name]
        if place.layers is None:
            return self.arrays[place.key]
        return lax.dynamic_index_in_dim(self.arrays[place.key], slot(place.layers, layers, layer), keepdims=False)

    def row(self, name: str, layers: tuple[int, ...], layer: Index, i: Index) -> jax.Array:
        """Element `i` along a weight's first axis, at a layer, without touching the others."""
        place, array = self.places[name], self.arrays[self.places[name].key]
        at = [i] if place.layers is None else [slot(place.layers, layers, layer), place.start + i]
        for each in at:
            array = lax.dynamic_index_in_dim(array, each, keepdims=False)
        return array

    def rows(self, name: str, layers: tuple[int, ...], layer: Index, i: jax.Array) -> jax.Array:
        """Elements `i` `[...]` along a weight's first axis, `[*i, ...]`; beyond the ends, the nearest."""
        return index(self.get(name, layers, layer), i)


def slot(held: tuple[int, ...], layers: tuple[int, ...], layer: Index) -> Index:
    """Where in `held` a layer stands; `layers` are those that `layer` may be."""
    places = [held.index(i) for i in layers]
    if isinstance(layer, int):
        return held.index(layer)
    if all(place - i == places[0] - layers[0] for i, place in zip(layers, places, strict=True)):
        return layer + (places[0] - layers[0])
    table = np.zeros(layers[-1] + 1, np.int32)
    table[list(layers)] = places
    return jnp.asarray(table)[layer]
