"""What is wrong with a target's row that a package brings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import fields

from ..installed import count_faults, kind_faults, number_faults
from .target import Compute, Features, Figure, Links, Memory, Spills, Target

# By the bits of an element.
TILES = (32, 16, 8, 4)
_PARTS = {"memory": Memory, "compute": Compute, "links": Links, "spills": Spills, "features": Features}
# What is divided by, or of which there is always some.
_POSITIVE = frozenset({"hbm", "vmem", "smem", "clock"})


def faults(row: Target) -> Iterator[str]:
    """Each may rely on those before."""
    for name, kind in (*_PARTS.items(), ("chips", Figure), ("note", str), ("compiler_name", str)):
        yield from kind_faults(f"`{name}`", getattr(row, name), kind)
    yield from count_faults("`topology_rank`", row.topology_rank)
    yield from count_faults("`cores`", row.cores)
    tile = row.compute.tile
    yield from kind_faults("`compute.tile`", tile, Mapping)
    if set(tile) != set(TILES):
        yield f"`compute.tile` has {', '.join(map(repr, tile)) or 'nothing'}; it must have {', '.join(map(str, TILES))}"
    yield from _figure_faults("`chips`", row.chips, positive=True)
    if row.chips.value != int(row.chips.value):
        yield f"`chips` is {row.chips.value!r}; it must be a whole number"
    for group in ("memory", "compute", "links"):
        for each in fields(_PARTS[group]):
            value = getattr(getattr(row, group), each.name)
            if each.name != "tile":
                positive = each.name in _POSITIVE or each.name.endswith("_rate")
                yield from _figure_faults(f"`{group}.{each.name}`", value, positive=positive)
    for bits, figure in tile.items():
        yield from _figure_faults(f"`compute.tile[{bits}]`", figure)
    for each in fields(Spills):
        value = getattr(row.spills, each.name)
        if each.name == "source":
            yield from kind_faults("`spills.source`", value, str)
        else:
            yield from number_faults(f"`spills.{each.name}`", value)
    yield from kind_faults("`features.float4`", row.features.float4, bool)


def _figure_faults(what: str, figure: object, *, positive: bool = False) -> Iterator[str]:
    if not isinstance(figure, Figure):
        yield from kind_faults(what, figure, Figure)
        return
    yield from number_faults(f"the value of {what}", figure.value, positive=positive)
    yield from kind_faults(f"the source of {what}", figure.source, str)
