"""What a part reads besides its products' matrices: one row for each layer, and tables that are looked up."""

from __future__ import annotations

from math import prod

from ...model import ir as m
from ...model.expressions import walk
from ...model.facts import STEP
from ...targets.lanes import padded
from .. import ir as p
from .build import Build


def vectors(build: Build, place: str) -> None:
    """One row of f32 in HBM for each layer with all that a place reads besides its products' matrices."""
    multiplied = {made.weight for made in build.facts.products if made.scope == place}
    names: dict[str, None] = {}
    for statement in build.facts.bodies[place]:
        for node in walk(statement.value):
            if isinstance(node, m.WeightRef) and node.name not in multiplied and not is_table(build, node.name):
                names[node.name] = None
    at, lies = 0, p.SmallWeightsRef(place)
    for name in names:
        declared = build.schedule.model.weights[name]
        shape = build.shares.weight_shape(declared)
        lines, width = shape[::-1] if len(shape) == 2 else (1, prod(shape))
        build.views[p.weight_key(place, declared)] = p.View(lies, at, shape, transposed=len(shape) == 2)
        at += lines * padded(width)
    if at:
        early = any(x.kind == "vectors" for x in build.schedule.prefetches) and not build.is_step(place)
        slots, part = 2 if early else 1, None if place == STEP else place
        build.buffer(lies, (slots, 1, at), "f32", "")
        build.copies[lies] = p.Copy(lies, part, lies, lies, slots)
        layers = 1 if build.is_step(place) else len(build.layers_of(place))
        build.arrays[lies] = p.Array(lies, (layers, 1, at), "f32", "vectors", part)


def is_table(build: Build, weight: str) -> bool:
    """Whether a weight is looked up row by row."""
    return weight in build.facts.tables
