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
class WeightSlice:
    """A weight in an array: which one, and its first row and rows if it shares a layer's with others."""

    key: str
    layers: tuple[int, ...] | None
    start: int = 0
    rows: int | None = None


@frozen
class Weights:
    """`arrays` are `[layers, ...]`, or plain for the model's own; `slices` says by name where a weight lies in them."""

    arrays: dict[str, jax.Array]
    slices: Mapping[str, WeightSlice] = field(eq=False)

    def get(self, name: str, layers: tuple[int, ...], layer: Index) -> jax.Array:
        """A weight at a layer that is one of `layers`."""
        slice_ = self.slices[name]
        whole = self.whole(name, layers, layer)
        return whole if slice_.rows is None else whole[slice_.start : slice_.start + slice_.rows]

    def whole(self, name: str, layers: tuple[int, ...], layer: Index) -> jax.Array:
        """A weight at a layer with those that share its array."""
        slice_ = self.slices[name]
        if slice_.layers is None:
            return self.arrays[slice_.key]
        return lax.dynamic_index_in_dim(self.arrays[slice_.key], slot(slice_.layers, layers, layer), keepdims=False)

    def row(self, name: str, layers: tuple[int, ...], layer: Index, i: Index) -> jax.Array:
        """Element `i` along a weight's first axis, at a layer, without touching the others."""
        slice_, array = self.slices[name], self.arrays[self.slices[name].key]
        at = [i] if slice_.layers is None else [slot(slice_.layers, layers, layer), slice_.start + i]
        for each in at:
            array = lax.dynamic_index_in_dim(array, each, keepdims=False)
        return array

    def rows(self, name: str, layers: tuple[int, ...], layer: Index, i: jax.Array) -> jax.Array:
        """Elements `i` `[...]` along a weight's first axis, `[*i, ...]`; beyond the ends, the nearest."""
        return index(self.get(name, layers, layer), i)


def slot(stacked: tuple[int, ...], layers: tuple[int, ...], layer: Index) -> Index:
    """Where in `held` a layer stands; `layers` are those that `layer` may be."""
    indices = [stacked.index(i) for i in layers]
    if isinstance(layer, int):
        return stacked.index(layer)
    if all(at - i == indices[0] - layers[0] for i, at in zip(layers, indices, strict=True)):
        return layer + (indices[0] - layers[0])
    table = np.zeros(layers[-1] + 1, np.int32)
    table[list(layers)] = indices
    return jnp.asarray(table)[layer]
