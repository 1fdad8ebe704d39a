"""What one core holds: axes cut by a schedule, with the padding that this takes."""

from __future__ import annotations

from functools import cached_property
from math import prod

from attrs import evolve

from ..collectives.collective import Operation
from ..model import ir as m
from ..model.codecs import kept_bytes, stored_bytes
from ..model.facts import Facts
from ..model.instance import Instance
from ..model.shapes import Atom, Poly, Shape
from ..records import frozen
from ..targets.lanes import padded
from ..targets.targets import BYTES
from .blocks import most
from .ir import Schedule
from .reduce_scatter import Columns


@frozen(slots=False)
class Shares:
    """A schedule at given sizes; lengths and bytes are those of one core."""

    schedule: Schedule
    instance: Instance

    @cached_property
    def facts(self) -> Facts:
        """What the model's graph says."""
        return self.instance.facts

    def size(self, name: str) -> int:
        """One core's share of a size; padding makes all shares equal."""
        length = self.instance.values[name]
        assert isinstance(length, int)
        return self._cut(name, length)

    def _cut(self, name: str, length: int) -> int:
        shard = self.schedule.shards.get(name)
        return length if shard is None else max(1, -(-length // self.schedule.ways(shard.axes)))

    def over(self, axis: Poly) -> tuple[str, ...]:
        """The mesh axes over which an axis of a weight is cut, in the mesh's order; none where each core has all."""
        named = {atom.name for atom in axis.atoms if atom.expr is None and self._is_cut(atom.name)}
        cut = {over for name in named for over in self.schedule.shards[name].axes}
        return tuple(name for name, size in self.schedule.mesh if name in cut and size > 1)

    def over_values(self, axis: Poly) -> tuple[str, ...]:
        """The same of an axis of values: of experts only the weights are shared out."""
        routed = {atom.name for atom in axis.atoms} & self._routed
        return () if routed else self.over(axis)

    def repeats(self, axis: Poly) -> int:
        """How many cores, one after the other among those of `over`, hold the same entries of an axis."""
        repeats = 1
        for name in {atom.name for atom in axis.atoms if atom.expr is None and self._is_cut(atom.name)}:
            shard, length = self.schedule.shards[name], self.instance.values[name]
            assert isinstance(length, int)
            ways = self.schedule.ways(shard.axes)
            repeats *= ways // length if shard.repeat and length < ways else 1
        return repeats

    def _is_cut(self, name: str) -> bool:
        length = self.instance.values.get(name)
        return name in self.schedule.shards and isinstance(length, int) and self._cut(name, length) < length

    def length(self, axis: Poly) -> int:
        """One core's share of an axis of values; of experts only the weights are shared out."""

        length = self._lengths.get(axis)
        if length is None:
            length = self._lengths[axis] = int(axis.evaluate(self._atom))
        return length

    @cached_property
    def _lengths(self) -> dict[Poly, int]:
        return {}

    def _atom(self, atom: Atom) -> int:
        whole = self.instance.length(Poly.of(atom))
        return whole if atom.expr is not None or atom.name in self._routed else self._cut(atom.name, whole)

    def shape(self, shape: Shape) -> tuple[int, ...]:
        """One core's share of a shape."""
        return tuple(self.length(axis) for axis in shape)

    def weight_shape(self, weight: m.Weight) -> tuple[int, ...]:
        """One core's share of a weight in one layer.

        A split product's rows are cut further, and so are the columns that contract a value left scattered.
        """
        shape = self._weight_shapes.get(weight.name)
        if shape is None:
            shape = self._weight_shapes[weight.name] = self._weight_shape(weight)
        return shape

    @cached_property
    def _weight_shapes(self) -> dict[str, tuple[int, ...]]:
        return {}

    def _weight_shape(self, weight: m.Weight) -> tuple[int, ...]:
        shape = self.shape(weight.shape)
        if weight.name in self._of_experts:
            experts = str(weight.shape[0])
            return (self._cut(experts, self.instance.length(weight.shape[0])), *shape[1:])
        if weight.name in self.of_scattered:
            return (*shape[:-1], self.scattered(shape[-1]))
        split = self.schedule.splits.get(weight.name)
        if split is None:
            return shape
        rows = self.instance.length(weight.shape[0])
        return (-(-rows // self.schedule.ways(split.axes)), *shape[1:])

    def cut_by_use(self, weight: m.Weight) -> dict[int, tuple[str, ...]]:
        """Axes of a weight that are cut though their sizes are not, each over what axes of the mesh."""
        if weight.name in self.of_scattered:
            return {len(weight.shape) - 1: tuple(self.schedule.axes)}
        split = self.schedule.splits.get(weight.name)
        return {} if split is None else {0: split.axes}

    @cached_property
    def _of_experts(self) -> frozenset[str]:
        return frozenset(name for names in self.facts.experts.values() for name in names)

    @cached_property
    def _routed(self) -> frozenset[str]:
        return frozenset(str(self.schedule.model.weights[name].shape[0]) for name in self._of_experts)

    def scattered(self, length: int) -> int:
        """One core's columns of a sum that is left scattered: whole lanes, so that the last cores may have none."""
        return min(length, padded(-(-length // self.schedule.cores)))

    @cached_property
    def columns(self) -> Columns:
        """What is made of values left scattered; weights that are split or sharded otherwise are not cut so."""
        scattered = frozenset(r.value for r in self.schedule.reduces if r.by.operation is Operation.REDUCE_SCATTER)
        weights = self.schedule.model.weights.values()
        sharded = {w.name for w in weights if any(map(self.over, w.shape))}
        return Columns(self.facts, scattered, frozenset(sharded | self.schedule.splits.keys()))

    @property
    def of_scattered(self) -> frozenset[str]:
        """Weights whose last axis is cut like a value left scattered: what contracts it, and gains of its norms."""
        return self.columns.weights

    def codec(self, weight: m.Weight) -> m.Codec:
        """How the schedule holds a weight."""
        return self._kept.get(weight.name, weight.codec)

    @cached_property
    def _kept(self) -> dict[str, m.Codec]:
        return {store.weight: store.codec for store in self.schedule.stores}

    def weight_bytes(self, weight: m.Weight) -> int:
        """One core's bytes of a weight in one layer, unpadded within its share."""
        bytes_ = self._weight_bytes.get(weight.name)
        if bytes_ is None:
            bytes_ = self._weight_bytes[weight.name] = self._bytes_of(weight)
        return bytes_

    @cached_property
    def _weight_bytes(self) -> dict[str, int]:
        return {}

    def _bytes_of(self, weight: m.Weight) -> int:
        size, codec = kept_bytes if weight.name in self._kept else stored_bytes, self.codec(weight)
        if codec.name == "bf16":
            codec = evolve(codec, name=self.instance.working)
        return size(codec, self.weight_shape(weight))

    def state_bytes(self, state: m.State) -> int:
        """One core's bytes of a state, or of one position of a cache, for one row and layer, as a step reads them."""
        bytes_ = self._state_bytes.get(state.name)
        if bytes_ is None:
            bytes_ = self._expanded(state) if self._is_expanded(state) else self._plain(state)
            self._state_bytes[state.name] = bytes_
        return bytes_

    @cached_property
    def _state_bytes(self) -> dict[str, int]:
        return {}

    def held_bytes(self, state: m.State) -> int:
        """The same as they are kept: a cache that is expanded also has its latents, which prompts are read with."""
        return self.state_bytes(state) + (self._plain(state) if self._is_expanded(state) else 0)

    def _is_expanded(self, state: m.State) -> bool:
        forms = {form.part: form.value for form in self.schedule.forms}
        return state.kind == "cache" and forms.get(state.part or "") == "expanded"

    def _plain(self, state: m.State) -> int:
        return prod(map(self.length, state.type.shape)) * BYTES[self.instance.dtype(state.type)]

    def _expanded(self, state: m.State) -> int:
        """Keys and values of every head in place of the latent; the common channels are part of the keys."""
        for node in self.facts.latent_attention(state.part or ""):
            q, latent, common, _ = node.args
            heads, width = self.shape(q.type.shape)
            if isinstance(latent, m.StateRef) and latent.name == state.name:
                value = self.length(node.type.shape[1])
                return heads * (width + value) * BYTES[self.instance.dtype(state.type)]
            if isinstance(common, m.StateRef) and common.name == state.name:
                return 0
        return 0

    def positions(self, state: m.State, layer: int | None) -> int:
        """How many positions of a cache the core with most of them keeps in a layer."""
        context = most(self.schedule.context, self.schedule.ways(self.schedule.over_positions))
        if state.last is None:
            return context
        last = self.instance.number(state.last, layer)
        return int(min(context, last))
