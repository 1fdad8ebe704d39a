"""The reference's weights, taken out of what the kernels read: there is one copy of them."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from attrs import evolve, field, frozen
from jax import lax

from ....dsl.model import ir as m
from ....dsl.program import ir as p
from ...reference.caches import Index
from ...reference.rounding import DTYPES
from ...reference.weights import Weights, WeightSlice, slot
from ..emit.call import Arrays
from ..layout import resharding, unpack
from ..layout.expert_unpack import expert_matrices
from ..layout.tape import first_rows


@frozen
class PackedWeights(Weights):
    """`arrays` are all cores' operands, `[cores, …]`; each weight is unpacked, and joined, where a step asks for it."""

    program: p.Program = field(eq=False)
    first_rows: Mapping[p.ProductRef, tuple[int, ...]] = field(eq=False)
    banks: Mapping[str, p.ExpertPool] = field(eq=False)

    def get(self, name: str, layers: tuple[int, ...], layer: Index) -> jax.Array:
        """A weight at a layer that is one of `layers`, whole."""
        program = self.program
        weight = program.instance.model.weights[name]
        dtype = self._dtype(weight)
        if any(name in product.weights for product in program.products.values()):
            mine = self.shares(name, self._slot(weight, layers, layer))
        elif p.SmallWeightRef(name) in program.views:
            mine = self._vector(weight, layers, layer).astype(dtype)
        else:
            width = program.shares.weight_shape(weight)[1]
            mine = unpack.table(self.arrays[p.TableRef(name).label], width, dtype)
        return resharding.of_weight(program.shares, weight).joined(mine)

    def whole(self, name: str, layers: tuple[int, ...], layer: Index) -> jax.Array:
        """The same: no weights share an array."""
        return self.get(name, layers, layer)

    def row(self, name: str, layers: tuple[int, ...], layer: Index, i: Index) -> jax.Array:
        """Element `i` along a weight's first axis, at a layer; of routed experts only that one is unpacked."""
        if name in self.banks:
            weight = self.program.instance.model.weights[name]
            return self._expert(weight, self._slot(weight, layers, layer), i)
        return self.rows(name, layers, layer, jnp.asarray(i))

    def rows(self, name: str, layers: tuple[int, ...], layer: Index, i: jax.Array) -> jax.Array:
        """Elements `i` `[...]` along a weight's first axis; of a table only those are unpacked."""
        table, weight = self.arrays.get(p.TableRef(name).label), self.program.instance.model.weights[name]
        if table is None:
            return super().rows(name, layers, layer, i)
        # Shares of entries, and never of columns; what is padding comes last, and is not asked for.
        how = resharding.of_weight(self.program.shares, weight).padded()
        words = evolve(how, cuts=(how.cuts[0], None, None)).joined(table)
        count, width = self.program.instance.shape(weight.shape)
        taken = jnp.take(words, jnp.clip(i, 0, count - 1), axis=0, mode="clip")
        return unpack.table(taken, width, self._dtype(weight))

    def shares(self, name: str, slot: Index) -> jax.Array:
        """Each core's share of a matrix on a tape, `[cores, outputs, inputs]`, in its part's layer of that number."""
        weight = self.program.instance.model.weights[name]
        products = [product for product in self.program.products.values() if name in product.weights]
        outputs, inputs = self.program.shares.weight_shape(weight)
        product = next((product for product in products if not product.piece), None)
        if product is not None:
            at = product.weights.index(weight.name)
            first = sum(product.widths[:at])
            return self._unpacked(product, slot)[:, first : first + product.widths[at], :inputs]
        # Each head's keys, whose piece is transposed, and then its values.
        absorb, expand = (next(product for product in products if product.piece == x) for x in ("absorb", "expand"))
        heads, (values,) = sum(run.count * run.blocks for run in expand.tiling.runs), expand.widths
        keys, rest = (
            self._unpacked(x, slot).reshape(-1, heads, x.tiling.outputs, x.tiling.inputs) for x in (absorb, expand)
        )
        keys = keys[:, :, :inputs, : outputs // heads - values].swapaxes(2, 3)
        return jnp.concatenate([keys, rest[:, :, :values, :inputs]], axis=2).reshape(-1, outputs, inputs)

    def _unpacked(self, product: p.Product, slot: Index) -> jax.Array:
        """All of a product in one of its layers, padded, `[cores, outputs, inputs]`."""
        tape = self.arrays[p.TapeRef(product.ring).label]
        start = jnp.asarray(self.first_rows[product.name], jnp.int32)[slot]
        rows = lax.dynamic_slice_in_dim(tape, start, product.tiling.rows, axis=1)
        return unpack.matrix(rows, product.tiling, jnp.dtype(DTYPES[product.dtype]))

    def _expert(self, weight: m.Weight, slot: Index, i: Index) -> jax.Array:
        """Expert `i`'s matrix, whole: every core unpacks the one that it has in that place of its share."""
        bank, how = self.banks[weight.name], resharding.of_weight(self.program.shares, weight)
        layer = lax.dynamic_index_in_dim(self.arrays[bank.array.label], slot, axis=1, keepdims=False)
        rows = lax.dynamic_index_in_dim(layer, i % bank.count, axis=1, keepdims=False)
        names = [name for names in bank.products for name in names]
        mine = expert_matrices(rows, bank.layout, self._dtype(weight))[names.index(weight.name)]
        cut = how.cuts[0] and evolve(how.cuts[0], share=1, length=-(-how.cuts[0].length // bank.count))
        return evolve(how, cuts=(cut, *how.cuts[1:])).joined(mine[:, None])[i // bank.count]

    def _vector(self, weight: m.Weight, layers: tuple[int, ...], layer: Index) -> jax.Array:
        view = self.program.views[p.SmallWeightRef(weight.name)]
        at = self._slot(weight, layers, layer)
        row = lax.dynamic_index_in_dim(self.arrays[view.buffer.label], at, axis=1, keepdims=False)
        return unpack.vector(row.squeeze(1), view)

    def _dtype(self, weight: m.Weight) -> jnp.dtype:
        return jnp.dtype(DTYPES[self.program.instance.dtype(weight.type)])

    def _slot(self, weight: m.Weight, layers: tuple[int, ...], layer: Index) -> Index:
        held = self.slices[weight.name].layers
        return 0 if held is None else slot(held, layers, layer)


def packed_weights(program: p.Program, arrays: Arrays) -> PackedWeights:
    """Every weight of a program, given all cores' operands."""
    instance = program.instance
    slices = {}
    for name, weight in instance.model.weights.items():
        layers = None if weight.part is None else program.layers_of(weight.part)
        slices[name] = WeightSlice(name, layers)
    banks = {name: bank for bank in program.banks.values() for names in bank.products for name in names}
    return PackedWeights(dict(arrays), slices, program, first_rows(program), banks)
