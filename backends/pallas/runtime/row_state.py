"""One sequence's states and caches, from the kernel's layout to the reference's and back.

Of a cache that is kept expanded the reference has the latents: what is made of them is made anew when they are written.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from attrs import evolve, field, frozen
from jax import lax

from ....dsl.program import ir as p
from ...reference.states import Arrays, Room, Store, plan
from ..layout import position_blocks, resharding
from ..layout.resharding import Sharing
from .expanded_cache import expanded


@frozen
class _Kept:
    """A state or cache: its array among the kernel's, the reference's, and how cores share an entry of it.

    Each of `ways` cores has `positions` of a cache, block by block.
    """

    array: p.Array
    store: Store
    sharing: Sharing
    positions: int = 0
    ways: int = 1


@frozen
class Rows:
    """`room` is the reference's room for one sequence, `[layers, 1, …]` each."""

    program: p.Program = field(repr=False)
    room: Room
    kept: tuple[_Kept, ...]

    def read(self, held: Arrays, row: jax.Array) -> Arrays:
        """A row of what the kernel holds, `[cores, layers, rows, …share]`, as the reference has it."""
        result = {}
        for part in self.kept:
            array = lax.dynamic_slice_in_dim(held[part.array.name.label], row, 1, axis=2)
            if part.array.kind != "state":
                # [cores, layers, 1, heads, positions, width]; the reference has no axis for the one head of latents
                array = array[..., : part.positions, : part.store.shape[-1]]
                array = array.squeeze(3) if part.store.axis == 0 else array
            array = part.sharing.joined(array)
            if part.array.kind == "cache":
                array = position_blocks.in_order(array, part.ways)[..., : part.store.shape[-2], :]
            result[part.store.key] = array
        return result

    def write(self, held: Arrays, row: jax.Array, states: Arrays, operands: Arrays) -> Arrays:
        """What the kernel holds with the reference's states in a row; `operands` are all cores'."""
        after = dict(held)
        for part in self.kept:
            array, whole = states[part.store.key], held[part.array.name.label]
            if part.array.kind == "cache":
                more = part.positions * part.ways - array.shape[-2]
                array = jnp.pad(array, [(0, 0)] * (array.ndim - 2) + [(0, more), (0, 0)])
                array = position_blocks.by_core(array, part.ways)
            array = part.sharing.cut(array)
            array = jnp.expand_dims(array, 3) if part.store.axis == 0 else array
            room = [(0, have - want) for have, want in zip(whole.shape, array.shape, strict=True)]
            room[2] = (0, 0)
            array = jnp.pad(array, room).astype(whole.dtype)
            after[part.array.name.label] = lax.dynamic_update_slice_in_dim(whole, array, row, axis=2)
        return after | expanded(self.program, operands, after, row)


def rows(program: p.Program, span: int) -> Rows:
    """For a program's states, and passes of up to `span` tokens."""
    room, parts = plan(program.instance, 1, program.schedule.context, span), []
    for array in program.arrays.values():
        if not isinstance(array.name, p.StateRef | p.ModelCacheRef):
            continue
        state = program.instance.model.states[array.name.state]
        (store,) = room.stores[state.name]
        shared = resharding.of_state(program.shares, state)
        if array.kind == "state":
            parts.append(_Kept(array, store, shared))
            continue
        *heads, width = shared.cuts
        assert store.axis == len(heads), "the kernel keeps positions after the heads"
        assert width is None, "and the channels of a head together"
        parts.append(_cache(program, array, store, shared))
    return Rows(program, room, tuple(parts))


def _cache(program: p.Program, array: p.Array, store: Store, entry: Sharing) -> _Kept:
    schedule, (*heads, _) = program.schedule, entry.cuts
    over = schedule.over_positions
    if not over:
        return _Kept(array, store, evolve(entry, cuts=(*heads, None, None)), store.shape[-2])
    ways = schedule.ways(over)
    own = next(ring.positions for ring in program.caches.values() if array.name in ring.caches)
    mesh_axes = tuple(i for i, name in enumerate(schedule.axes) if name in over)
    cut = resharding.Cut(mesh_axes, own, ways * own, 1)
    return _Kept(array, store, evolve(entry, cuts=(*heads, cut, None)), own, ways)
