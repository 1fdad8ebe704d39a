"""Ops whose options depend on the layer, and what a rotary embedding turns by, which its options decide."""

from __future__ import annotations

from functools import partial, reduce

from attrs import evolve

from ...model import ir as m
from ...model.ir import Node
from ...text import syntax as s
from .. import ir as p
from ..layout.lanes import turned
from .build import cannot, layer_scalar
from .frame import Frame
from .partials import number

type Options = tuple[tuple[str, m.Static], ...]


def by_layer(call: m.Call, frame: Frame) -> Node:
    """A call whose options may depend on the layer: one call for each of their values, of which the layer takes its."""
    ways = options_by_layer(call, frame)
    if len(ways) > 1 and (len(call.types) > 1 or any(isinstance(arg, m.StateRef) for arg in call.args)):
        static = next(static for _, static in call.options if static.depends)
        raise cannot(f"`{call.op}` with an option that depends on the layer", static.span)
    names = {f"+given {i}": arg for i, arg in enumerate(call.args) if isinstance(arg, m.Call | m.Select | m.Let)}
    if len(ways) > 1:
        bound = {id(arg): m.Local(name, arg.type, arg.span) for name, arg in names.items()}
        call = evolve(call, args=tuple(bound.get(id(arg), arg) for arg in call.args))
    found: Node | None = None
    for layers, options in reversed(ways):
        one: Node = evolve(call, options=options)
        if call.op == "rope":
            _turns(evolve(call, options=options), frame)
        found = one if found is None else m.Select(_in_layers(layers, call, frame), one, found, call.type, call.span)
    assert found is not None
    return m.Let(tuple(names.items()), found, call.span) if len(ways) > 1 and names else found


def options_by_layer(call: m.Call, frame: Frame) -> list[tuple[list[int], Options]]:
    """The values that a call's options have, and the layers in which they are those."""
    if not any(static.depends for _, static in call.options):
        return [([], call.options)]
    found: dict[tuple[float | None, ...], tuple[list[int], Options]] = {}
    for static in (static for _, static in call.options):
        layer_scalar(frame.build, static, table=False)
    for layer in frame.build.layers_of(frame.place):
        values = [
            (name, static, frame.build.shares.instance.number(static, layer) if static.depends else None)
            for name, static in call.options
        ]
        options = tuple((name, static if value is None else number(value, static)) for name, static, value in values)
        found.setdefault(tuple(value for _, _, value in values), ([], options))[0].append(layer)
    return list(found.values())


def _in_layers(layers: list[int], call: m.Call, frame: Frame) -> m.Static:
    """Whether the layer is one of these."""
    at = call.span
    each = [s.Binary(at, "==", s.Name(at, "layer"), s.Number(at, layer, str(layer))) for layer in layers]
    static = m.Static(reduce(partial(s.Binary, at, "or"), each), frozenset({"layer"}), at)
    layer_scalar(frame.build, static)
    return static


def _turns(call: m.Call, frame: Frame) -> None:
    """What a rotary embedding turns by is the same in all layers."""
    build, channels = frame.build, frame.build.shares.length(call.type.shape[-1])
    width = call.option("width")
    turning = channels if width is None else int(build.shares.instance.number(width))
    key = p.rope_key(call, channels, build.shares.instance, build.step.name)
    if key not in build.turns:
        lanes = turned(channels, turning)
        number = len(build.turns) + 1
        cos, sin = (
            build.buffer(p.RopeRef(what, number), (build.rows, lanes), "f32", "", call.span) for what in ("cos", "sin")
        )
        build.turns[key] = p.RopeTables(cos, sin, channels, call)
