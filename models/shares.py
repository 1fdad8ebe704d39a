"""One core's share of a weight, cut from the whole as a schedule says, padded with zeros at its end."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dsl.model import ir as m
from ..dsl.model.shapes import Poly
from ..dsl.schedule.ir import Schedule
from ..dsl.schedule.shares import Shares

type Array = np.ndarray[Any, Any]


def rank(schedule: Schedule, core: int, axes: tuple[str, ...]) -> int:
    """A core's place along some axes of the mesh; the last axis is the fastest."""
    place, at = {}, core
    for name, size in reversed(schedule.mesh):
        place[name], at = at % size, at // size
    found, sizes = 0, dict(schedule.mesh)
    for name, _ in schedule.mesh:
        if name in axes:
            found = found * sizes[name] + place[name]
    return found


def share(array: Array, weight: m.Weight, shares: Shares, core: int) -> Array:
    """What `core` holds of a weight of one layer, `[…]` as `shares.weight_shape` says; a view where it can be."""
    wanted = shares.weight_shape(weight)
    split = shares.schedule.splits.get(weight.name)
    for axis, (poly, length) in enumerate(zip(weight.shape, wanted, strict=True)):
        if array.shape[axis] == length:
            continue
        if split is not None and axis == 0:
            first = rank(shares.schedule, core, split.axes) * length
            part = array[first : first + length]
        else:
            part = _cut(array, axis, poly, shares, core)
        array = part
        if part.shape[axis] < length:
            room = [(0, 0)] * part.ndim
            room[axis] = (0, length - part.shape[axis])
            array = np.pad(part, room)
    return array


def _cut(array: Array, axis: int, poly: Poly, shares: Shares, core: int) -> Array:
    """The sharded size is the outermost factor of an axis, so that a share is one range."""
    schedule = shares.schedule
    shard = next(schedule.shards[a.name] for a in poly.atoms if a.name in schedule.shards)
    size = shares.instance.values[shard.size]
    assert isinstance(size, int)
    ways, at = schedule.ways(shard.axes), rank(schedule, core, shard.axes)
    unit = array.shape[axis] // size
    if shard.repeat and size < ways:
        first, last = at // (ways // size), at // (ways // size) + 1
    else:
        each = -(-size // ways)
        first, last = min(at * each, size), min((at + 1) * each, size)
    index = [slice(None)] * array.ndim
    index[axis] = slice(first * unit, last * unit)
    return array[tuple(index)]
