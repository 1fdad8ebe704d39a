"""Attention of a block's rows: over what a cache has of earlier positions, and over each other."""

from __future__ import annotations

from ...model import ir as m
from ...model.ir import Node, Type
from .. import ir as p
from ..layout.lanes import whole_lanes
from .attention import of_model, ring_of_tiles
from .build import cannot
from .frame import Frame
from .reduce import complete


def attend_block(call: m.Call, frame: Frame) -> Node:
    """Grouped queries over the tiles of a cache, the entries that an earlier step wrote, and the block's own."""
    build, (q, *own, keys, values) = frame.build, call.args
    if build.schedule.over_positions:
        raise cannot("share out the positions of keys and values of several heads", call.span)
    if any(static.depends for _, static in call.options):
        raise cannot("attend to a block with an option that depends on the layer", call.span)
    caches = of_model((keys, values), build)
    name, working = frame.fresh("attend"), build.dtype(Type("bf16"))
    held = []
    for role, node in zip((p.Role.QUERY, p.Role.KEYS, p.Role.VALUES), (q, *own), strict=True):
        shape = whole_lanes(build.shares.shape(node.type.shape))
        value = complete(frame.split(node, frame), node.type, frame)
        held.append(frame.compute(p.PartRef(role, name), shape, working, value))
    ring, early = ring_of_tiles(caches, call, frame)
    earlier = tuple(map(p.EntryRef, caches))
    for entry in earlier:
        array = build.outputs.get(entry)
        layers = build.layers_of(frame.place)
        if array is None or array.part is None or build.shares.instance.part_layers[array.part] != layers:
            raise cannot("attend to a cache whose entries no earlier step writes in the same layers", call.span)
    shape = build.shares.shape(call.type.shape)
    result = build.buffer(name, (build.rows, *whole_lanes(shape)), "f32", frame.place, call.span)
    build.views[result] = p.View(result, 0, shape)
    if early is None:
        frame.ops.append(p.StartTiles(ring))
    frame.ops.append(p.AttendBlock(ring, call, tuple(held[:1]), tuple(held[1:]), earlier, result))
    return frame.read(result, call.type, call)
