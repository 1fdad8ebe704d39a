"""What a part reads besides its products' matrices: one row for each layer, and tables that are looked up."""

from __future__ import annotations

from math import prod

from ...model import ir as m
from ...model.expressions import walk
from ...model.facts import STEP
from ...targets.lanes import LANES
from .. import ir as p
from .build import Build

ROW = "row of "  # and a table's name: what was looked up
_AT = " at "  # and what by, where it is not the token


def row_name(table: str, index: str) -> str:
    """The value that was looked up in a table by an input, `token` or `position`."""
    return f"{ROW}{table}" if index == "token" else f"{ROW}{table}{_AT}{index}"


def looked_up(name: str) -> tuple[str, str]:
    """The table and the input that such a value is of."""
    table, _, index = name.removeprefix(ROW).partition(_AT)
    return table, index or "token"


def vectors(build: Build, place: str) -> None:
    """One row of f32 in HBM for each layer with all that a place reads besides its products' matrices."""
    multiplied = {made.weight for made in build.facts.products if made.scope == place}
    names: dict[str, None] = {}
    for statement in build.facts.bodies[place]:
        for node in walk(statement.value):
            if isinstance(node, m.WeightRef) and node.name not in multiplied and not is_table(build, node.name):
                names[node.name] = None
    at = 0
    for name in names:
        declared = build.schedule.model.weights[name]
        shape = build.shares.weight_shape(declared)
        lines, width = shape[::-1] if len(shape) == 2 else (1, prod(shape))
        build.views[p.weight_key(place, declared)] = p.View(f"vectors {place}", at, shape, transposed=len(shape) == 2)
        at += lines * -(-width // LANES) * LANES
    if at:
        early = any(x.kind == "vectors" for x in build.schedule.prefetches) and not build.is_step(place)
        slots, part = 2 if early else 1, None if place == STEP else place
        name = build.buffer(f"vectors {place}", (slots, 1, at), "f32", "")
        build.copies[name] = p.Copy(name, part, name, name, slots)
        layers = 1 if build.is_step(place) else len(build.layers_of(place))
        build.arrays[name] = p.Array(name, (layers, 1, at), "f32", "vectors", part)


def is_table(build: Build, weight: str) -> bool:
    """Whether a weight is looked up row by row."""
    return weight in build.facts.tables
