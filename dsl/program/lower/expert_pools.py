"""Banks: where a part's experts lie, and as what numbers."""

from __future__ import annotations

from ...diagnostics import Diagnostic, Label, MksError
from ...model import ir as m
from ...model.expressions import walk
from .. import ir as p
from ..layout.expert_layout import expert_layout
from ..layout.tiling import WIDTH
from .build import Build, cannot, sharded_over


def expert_bank(build: Build, place: str, node: m.Experts, slots: int, routes: p.ValueRef, top: int) -> p.ExpertPool:
    """Where the chosen experts of a part come from, and the slots that they go through."""
    weights = build.schedule.model.weights
    found: dict[tuple[object, m.Codec], list[str]] = {}
    for call in walk(node.body):
        if isinstance(call, m.Call) and call.op == "matmul":
            indexed, x = call.args
            if not isinstance(indexed, m.Call) or not isinstance(indexed.args[0], m.WeightRef):
                raise cannot("multiply by a matrix that is no expert's inside the experts' body", call.span)
            key = x.name if isinstance(x, m.Local) else len(found), kept_as(build, weights[indexed.args[0].name])
            found.setdefault(key, []).append(indexed.args[0].name)
    # The innermost product comes first.
    products = tuple(tuple(names) for names in reversed(found.values()))
    shapes = []
    for (_, codec), names in reversed(found.items()):
        own = [build.shares.weight_shape(weights[name]) for name in names]
        shapes.append(("+".join(names), tuple(shape[1] for shape in own), own[0][2], codec))
    layout = expert_layout(shapes)
    name = p.ExpertPoolRef(place)
    count = build.shares.weight_shape(weights[products[0][0]])[0]
    build.buffer(name, (slots, layout.rows, WIDTH), "int32", "", node.span)
    layers, array = len(build.layers_of(place)), p.ExpertArrayRef(place)
    build.arrays[array] = p.Array(array, (layers, count, layout.rows, WIDTH), "int32", "bank", place)
    over, most = sharded_over(build, weights[products[0][0]].shape[0]), min(count, build.rows * top)
    build.banks[name] = p.ExpertPool(
        name, place, array, slots, products, layout, routes, count, top, most, over, node.span
    )
    return build.banks[name]


def kept_as(build: Build, weight: m.Weight) -> m.Codec:
    """What a core holds of an expert's matrix: `mxfp4` as it is stored, `fp8` re-blocked, or plain numbers."""
    said = next((store for store in build.schedule.stores if store.weight == weight.name), None)
    if weight.name in build.plain and said is not None:
        raise MksError(
            [
                Diagnostic(
                    "E429",
                    f"`{weight.name}` cannot be kept as {said.codec}: the checkpoint has plain numbers",
                    Label(said.span),
                    (Label(weight.span, f"{weight.codec}, or what the checkpoint has"),),
                    ("only what is stored as mxfp4 has few enough bits to keep its values in eight",),
                    (f"without the line `{weight.name}` stays as it is stored",),
                )
            ]
        )
    if said is not None:
        return said.codec
    plain = weight.name in build.plain or weight.codec.name != "mxfp4"
    return m.Codec(build.dtype(weight.type)) if plain else weight.codec
