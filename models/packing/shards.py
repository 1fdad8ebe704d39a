"""One core's share of a weight, cut from the whole as a schedule says, padded with zeros at its end."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dsl.model import ir as m
from ...dsl.model.shapes import Poly
from ...dsl.schedule.ir import Schedule
from ...dsl.schedule.shares import Shares

type Array = np.ndarray[Any, Any]


def rank(schedule: Schedule, core: int, axes: tuple[str, ...]) -> int:
    """A core's place along some axes of the mesh; the last axis is the fastest."""
    coordinates, at = {}, core
    for name, size in reversed(schedule.mesh):
        coordinates[name], at = at % size, at // size
    index, sizes = 0, dict(schedule.mesh)
    for name, _ in schedule.mesh:
        if name in axes:
            index = index * sizes[name] + coordinates[name]
    return index


def ranges(weight: m.Weight, shares: Shares, core: int) -> tuple[range, ...]:
    """Which indices of each axis of a weight `core` holds: fewer than `shares.weight_shape` says at the axis's end."""
    over = shares.cut_by_use(weight)
    result = []
    for axis, (poly, length) in enumerate(zip(weight.shape, shares.weight_shape(weight), strict=True)):
        whole = shares.instance.length(poly)
        if whole == length:
            result.append(range(whole))
        elif axis in over:
            first = rank(shares.schedule, core, over[axis]) * length
            result.append(range(min(first, whole), min(first + length, whole)))
        else:
            result.append(_range(whole, poly, shares, core))
    return tuple(result)


def share(array: Array, weight: m.Weight, shares: Shares, core: int) -> Array:
    """What `core` holds of a weight of one layer, `[…]` as `shares.weight_shape` says; a view where it can be."""
    part = array[tuple(slice(range_.start, range_.stop) for range_ in ranges(weight, shares, core))]
    wanted = shares.weight_shape(weight)
    if part.shape == wanted:
        return part
    return np.pad(part, [(0, length - have) for have, length in zip(part.shape, wanted, strict=True)])


def _range(whole: int, poly: Poly, shares: Shares, core: int) -> range:
    """The sharded size is the outermost factor of an axis, so that a share is one range."""
    schedule = shares.schedule
    shard = next(schedule.shards[a.name] for a in poly.atoms if a.name in schedule.shards)
    size = shares.instance.values[shard.size]
    assert isinstance(size, int)
    ways, at = schedule.ways(shard.axes), rank(schedule, core, shard.axes)
    unit = whole // size
    if shard.repeat and size < ways:
        first, last = at // (ways // size), at // (ways // size) + 1
    else:
        each = -(-size // ways)
        first, last = min(at * each, size), min((at + 1) * each, size)
    return range(first * unit, last * unit)
