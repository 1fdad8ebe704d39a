"""Latent attention where cores have positions of their own: all heads over these, and then the heads go home.

A head's softmax over some positions is its largest score, its sum of weights and its weighted sum of values, and those
of two sets of positions make that of both.
"""

from __future__ import annotations

from ...collectives.collective import Wire
from ...collectives.gather import GATHER
from ...collectives.softmax_merge import SOFTMAX_MERGE
from ...model import ir as m
from ...model.ir import Node
from ...targets.lanes import LANES
from .. import ir as p
from ..layout.lanes import whole_lanes
from .build import Build
from .frame import Frame
from .partials import number


def heads_of_all(build: Build, heads: int) -> int:
    """How many heads the cores have that share out positions, each `heads` of them."""
    return heads * build.schedule.ways(build.schedule.over_positions)


def gather(
    name: p.TempRef, queries: tuple[Node, ...], buffers: tuple[p.BufferRef, ...], heads: int, call: m.Call, frame: Frame
) -> None:
    """The queries `[rows, heads, …]` of each core, which come into `buffers` `[rows, heads of all, …]`."""
    build, q = frame.build, call.args[0]
    widths = [build.buffers[buffer].shape[-1] for buffer in buffers]
    total = heads * sum(widths)
    shares = tuple(
        m.Call("view_in_lanes", (query,), (("width", number(width, q)),), (q.type,), q.span)
        for query, width in zip(queries, widths, strict=True)
    )
    node = m.Call("side_by_side", shares, (), (q.type,), q.span)
    value = frame.compute(p.PartRef(p.Role.QUERIES, name), (total,), "f32", node)
    pieces, at = [], 0
    for buffer, width in zip(buffers, widths, strict=True):
        pieces.append(p.Piece(buffer, at, heads * width))
        at += heads * width
    over = build.schedule.over_positions
    frame.exchange(
        p.Collective(p.QueriesRef(name), GATHER, Wire.F32, over, value, None, 0, total, q.span, tuple(pieces))
    )


def merge(name: p.TempRef, found: Node, shape: tuple[int, int], call: m.Call, frame: Frame) -> Node:
    """This core's heads over all positions, `[rows, *shape]`, of those of all heads over its own."""
    build, (heads, width) = frame.build, shape
    own = frame.buffer_of(found)
    assert own is not None
    result = build.buffer(
        p.PartRef(p.Role.MERGED, name), (build.rows, *whole_lanes(shape)), "f32", frame.place, call.span
    )
    build.views[result] = p.View(result, 0, shape)
    columns = heads * (whole_lanes((width,))[0] + LANES)
    over = build.schedule.over_positions
    frame.exchange(p.Collective(p.MergeRef(name), SOFTMAX_MERGE, Wire.F32, over, own, result, 0, columns, call.span))
    return frame.read(result, call.type, call)
