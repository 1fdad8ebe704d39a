"""The reference's weights, taken out of what the kernels read: there is one copy of them."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from attrs import evolve, field, frozen
from jax import lax

from ...dsl.model import ir as m
from ...dsl.program import ir as p
from ..reference.caches import Index
from ..reference.rounding import DTYPES
from ..reference.weights import Place, Weights, slot
from . import sharing, unpack
from .call import Arrays


@frozen
class PackedWeights(Weights):
    """`arrays` are all cores' operands, `[cores, …]`; each weight is unpacked, and joined, where a step asks for it."""

    program: p.Program = field(eq=False)
    tapes: Mapping[str, tuple[p.Product, np.ndarray]] = field(eq=False)

    def get(self, name: str, layers: tuple[int, ...], layer: Index) -> jax.Array:
        """A weight at a layer that is one of `layers`, whole."""
        program = self.program
        weight = program.instance.model.weights[name]
        dtype = self._dtype(weight)
        if name in self.tapes:
            mine = self._matrix(weight, layers, layer)
        elif name in program.views:
            mine = self._vector(weight, layers, layer).astype(dtype)
        else:
            width = program.shares.weight_shape(weight)[1]
            mine = unpack.table(self.arrays[f"table {name}"], width, dtype)
        return sharing.of_weight(program.shares, weight).joined(mine)

    def whole(self, name: str, layers: tuple[int, ...], layer: Index) -> jax.Array:
        """The same: no weights share an array."""
        return self.get(name, layers, layer)

    def row(self, name: str, layers: tuple[int, ...], layer: Index, i: Index) -> jax.Array:
        """Element `i` along a weight's first axis, at a layer."""
        return self.rows(name, layers, layer, jnp.asarray(i))

    def rows(self, name: str, layers: tuple[int, ...], layer: Index, i: jax.Array) -> jax.Array:
        """Elements `i` `[...]` along a weight's first axis; of a table only those are unpacked."""
        table, weight = self.arrays.get(f"table {name}"), self.program.instance.model.weights[name]
        if table is None:
            return super().rows(name, layers, layer, i)
        # Shares of entries, and never of columns; what is padding comes last, and is not asked for.
        how = sharing.of_weight(self.program.shares, weight).padded()
        words = evolve(how, cuts=(how.cuts[0], None, None)).joined(table)
        count, width = self.program.instance.shape(weight.shape)
        found = jnp.take(words, jnp.clip(i, 0, count - 1), axis=0, mode="clip")
        return unpack.table(found, width, self._dtype(weight))

    def _matrix(self, weight: m.Weight, layers: tuple[int, ...], layer: Index) -> jax.Array:
        """Each core's share, `[cores, outputs, inputs]`."""
        product, starts = self.tapes[weight.name]
        tape = self.arrays[f"tape {product.ring}"]
        start = jnp.asarray(starts)[self._slot(weight, layers, layer)]
        zero = jnp.zeros_like(start)
        size = (tape.shape[0], product.tiling.rows, tape.shape[2])
        rows = lax.dynamic_slice(tape, (zero, start, zero), size)
        matrix = unpack.matrix(rows, product.tiling, jnp.dtype(DTYPES[product.dtype]))
        at = product.weights.index(weight.name)
        first, inputs = sum(product.widths[:at]), self.program.shares.weight_shape(weight)[1]
        return matrix[:, first : first + product.widths[at], :inputs]

    def _vector(self, weight: m.Weight, layers: tuple[int, ...], layer: Index) -> jax.Array:
        view = self.program.views[weight.name]
        at = self._slot(weight, layers, layer)
        row = lax.dynamic_index_in_dim(self.arrays[view.buffer], at, axis=1, keepdims=False)
        return unpack.vector(row.squeeze(1), view)

    def _dtype(self, weight: m.Weight) -> jnp.dtype:
        return jnp.dtype(DTYPES[self.program.instance.dtype(weight.type)])

    def _slot(self, weight: m.Weight, layers: tuple[int, ...], layer: Index) -> Index:
        held = self.places[weight.name].layers
        return 0 if held is None else slot(held, layers, layer)


def packed_weights(program: p.Program, arrays: Arrays) -> PackedWeights:
    """Every weight of a program, given all cores' operands."""
    instance = program.instance
    places = {}
    for name, weight in instance.model.weights.items():
        layers = None if weight.part is None else _layers(program, weight.part)
        places[name] = Place(name, layers)
    return PackedWeights(dict(arrays), places, program, _starts(program))


def _layers(program: p.Program, part: str) -> tuple[int, ...]:
    return tuple(layer for layer, parts in program.layer_parts.items() if part in parts)


def _starts(program: p.Program) -> dict[str, tuple[p.Product, np.ndarray]]:
    """For each weight on a tape its product, and the first row of it in each of its layers."""
    found: dict[str, list[int]] = {name: [] for name in program.products}
    for ring in program.rings:
        at = 0
        for name, _ in program.transfers(ring):
            found[name].append(at)
            at += program.products[name].tiling.rows
    return {
        weight: (product, np.asarray(found[product.name], np.int32))
        for product in program.products.values()
        for weight in product.weights
    }
