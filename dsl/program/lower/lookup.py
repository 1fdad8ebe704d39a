"""Rows of tables, looked up by an input or by what was computed, and the ids of the largest numbers."""

from __future__ import annotations

from ...collectives.argmax import ARGMAX
from ...collectives.collective import Wire
from ...model import ir as m
from ...model.expressions import walk
from ...model.ir import Node
from ...targets.lanes import LANES
from .. import ir as p
from ..layout.lanes import table_words
from .build import cannot, layer_scalar
from .frame import Frame
from .reduce import complete
from .sharded_value import ShardedValue, whole


def look_up(call: m.Call, frame: Frame) -> ShardedValue:
    table, index = call.args
    assert isinstance(table, m.WeightRef)
    build = frame.build
    declared = build.schedule.model.weights[table.name]
    share, width = build.shares.weight_shape(declared)
    dtype = build.dtype(declared.type)
    if width != build.shares.instance.length(declared.shape[1]):
        raise cannot("look up rows whose columns are shared out", call.span)
    over = build.shares.over(declared.shape[0])
    if isinstance(index, m.Input):
        by: str | m.Ref = index.name
    else:
        by, index = frame.fresh("index"), complete(frame.split(index, frame), index.type, frame)
        for node in walk(index):
            if isinstance(node, m.Static) and "layer" in node.depends:
                layer_scalar(build, node)
    own = frame.place in build.homes or build.step.name
    full, lies = p.RowRef(table.name, by, frame.place if own else ""), p.TableRef(table.name)
    if build.shares.repeats(declared.shape[0]) > 1:
        raise cannot("look up rows of which several cores hold the same", call.span)
    words = table_words(width, dtype)
    if full not in build.buffers:
        build.buffer(full, (build.rows, 1, words), "int32", "", call.span)
        build.views[full] = p.View(full, 0, (width,))
        build.arrays[lies] = p.Array(lies, (share, 1, words), "int32", "table")
    frame.ops.append(p.Lookup(lies, index, full, share if over else None))
    local = frame.read(full, call.type, call)
    return ShardedValue(local, None, over) if over else whole(local)


def argmax(call: m.Call, frame: Frame) -> Node:
    """The id of the largest number; each core asks about its own, where they are shared out."""
    build, axis = frame.build, call.args[0].type.shape[-1]
    if len(call.args[0].type.shape) > 1:
        raise cannot("choose among several vectors at once", call.span)
    node = complete(frame.split(call.args[0], frame), call.args[0].type, frame)
    name, made = frame.fresh("argmax"), p.ChoiceRef(frame.place, frame.value)
    value = frame.compute(p.PartRef(p.Role.NUMBERS, name), build.shares.shape(call.args[0].type.shape), "f32", node)
    result = build.held(name, (), "int32", frame.place, call.span)
    exchange = None
    if build.shares.over_values(axis):
        taken = {made, p.SumRef(frame.place, frame.value)} & build.exchanges.keys()
        exchange = p.ChoiceRef(frame.place, frame.value, frame.next_number()) if taken else made
        build.exchanges[exchange] = p.Collective(
            exchange, ARGMAX, Wire.INT32, build.schedule.over_all, value, None, 0, LANES, call.span
        )
    frame.ops.append(p.ArgmaxValue(value, call, exchange, result))
    return frame.read(result, call.type, call)
