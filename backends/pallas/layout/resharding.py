"""What all cores hold of an array, joined to the whole, and the whole cut up again, in JAX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import jax
import jax.numpy as jnp
from attrs import evolve, frozen
from jax import lax

from ....dsl.model import ir as m
from ....dsl.model.shapes import Poly
from ....dsl.schedule.shares import Shares


@frozen
class Cut:
    """How an axis of `length` is shared out: over which axes of the mesh, by number and in order, in shares of `share`.

    So many cores one after the other hold the same where it is repeated.
    """

    places: tuple[int, ...]
    share: int
    length: int
    repeat: int

    def ways(self, mesh: tuple[int, ...]) -> int:
        """Over how many cores of a mesh of these lengths."""
        return prod(mesh[place] for place in self.places)


@frozen
class Sharing:
    """A mesh's lengths and, for the last axes of an array, how each is cut; an axis that is not is `None`."""

    mesh: tuple[int, ...]
    cuts: tuple[Cut | None, ...]

    @property
    def _used(self) -> list[int]:
        return sorted(place for cut in self.cuts if cut is not None for place in cut.places)

    def padded(self) -> Sharing:
        """The same of wholes that keep the last shares' padding."""
        longer = [cut and evolve(cut, length=cut.ways(self.mesh) // cut.repeat * cut.share) for cut in self.cuts]
        return evolve(self, cuts=tuple(longer))

    def joined(self, array: jax.Array) -> jax.Array:
        """`[cores, *lead, *share]` as the whole `[*lead, *whole]`, without padding and repeats."""
        array = array.reshape(*self.mesh, *array.shape[1:])
        used = self._used
        for place in reversed(range(len(self.mesh))):
            if place not in used:
                array = lax.index_in_dim(array, 0, place, keepdims=False)
        first = array.ndim - len(self.cuts)
        order, shape = list(range(len(used), first)), list(array.shape[len(used) : first])
        for i, cut in enumerate(self.cuts):
            order += [used.index(place) for place in cut.places] if cut is not None else []
            order.append(first + i)
            shape += [array.shape[first + i]] if cut is None else [cut.ways(self.mesh), cut.share]
        array, axis = array.transpose(order).reshape(shape), first - len(used)
        for cut in self.cuts:
            if cut is not None:
                array = lax.slice_in_dim(array, 0, None, stride=cut.repeat, axis=axis)
                array = array.reshape(*array.shape[:axis], -1, *array.shape[axis + 2 :])
                array = lax.slice_in_dim(array, 0, cut.length, axis=axis)
            axis += 1
        return array

    def cut(self, array: jax.Array) -> jax.Array:
        """The whole `[*lead, *whole]` as every core holds it, `[cores, *lead, *share]`; padding is zero."""
        used, axis = self._used, array.ndim - len(self.cuts)
        places: list[int | None] = [None] * axis
        for cut in self.cuts:
            if cut is not None:
                shares = cut.ways(self.mesh) // cut.repeat
                room = [(0, 0)] * array.ndim
                room[axis] = (0, shares * cut.share - cut.length)
                array = jnp.pad(array, room)
                array = array.reshape(*array.shape[:axis], shares, cut.share, *array.shape[axis + 1 :])
                array = jnp.repeat(array, cut.repeat, axis=axis) if cut.repeat > 1 else array
                ways = [self.mesh[place] for place in cut.places]
                array = array.reshape(*array.shape[:axis], *ways, *array.shape[axis + 1 :])
                axis += len(ways)
                places += cut.places
            places.append(None)
            axis += 1
        rest = [i for i, place in enumerate(places) if place is None]
        array = array.transpose(*(places.index(place) for place in used), *rest)
        for place, length in enumerate(self.mesh):
            if place not in used:
                array = jnp.broadcast_to(
                    jnp.expand_dims(array, place), (*array.shape[:place], length, *array.shape[place:])
                )
        return array.reshape(prod(self.mesh), *array.shape[len(self.mesh) :])


def of_weight(shares: Shares, weight: m.Weight) -> Sharing:
    """How a layer's weight is shared out."""
    return _sharing(shares, weight.shape, shares.weight_shape(weight), shares.cut_by_use(weight))


def of_state(shares: Shares, state: m.State) -> Sharing:
    """How a state, or a cache's entry, is shared out."""
    return _sharing(shares, state.type.shape, shares.shape(state.type.shape))


def of_value(shares: Shares, shape: Sequence[Poly]) -> Sharing:
    """How a value of `shape` is shared out."""
    return _sharing(shares, shape, shares.shape(tuple(shape)))


def _sharing(
    shares: Shares, shape: Sequence[Poly], share: tuple[int, ...], known: Mapping[int, tuple[str, ...]] | None = None
) -> Sharing:
    """`known` are mesh axes over which an axis is cut, where not its size's own `shard` says it."""
    mesh = shares.schedule.axes
    cuts: list[Cut | None] = []
    whole = shares.instance.shape(tuple(shape))
    for axis, (poly, mine, length) in enumerate(zip(shape, share, whole, strict=True)):
        if mine == length:
            cuts.append(None)
            continue
        repeat, over = 1, (known or {}).get(axis)
        if over is None:
            shard = next(shares.schedule.shards[a.name] for a in poly.atoms if a.name in shares.schedule.shards)
            size, over = shares.instance.values[shard.size], shard.axes
            assert isinstance(size, int)
            ways = shares.schedule.ways(shard.axes)
            repeat = ways // size if shard.repeat and size < ways else 1
        places = tuple(i for i, name in enumerate(mesh) if name in over)
        cuts.append(Cut(places, mine, length, repeat))
    return Sharing(tuple(mesh.values()), tuple(cuts))
