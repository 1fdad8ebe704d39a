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


def gather(name: str, queries: tuple[Node, ...], buffers: tuple[str, ...], heads: int, call: m.Call,
           frame: Frame) -> None:  # fmt: skip
    """The queries `[rows, heads, …]` of each core, which come into `buffers` `[rows, heads of all, …]`."""
    build, q = frame.build, call.args[0]
    widths = [build.buffers[buffer].shape[-1] for buffer in buffers]
    total = heads * sum(widths)
    shares = tuple(
        m.Call("view_in_lanes", (query,), (("width", number(width, q)),), (q.type,), q.span)
        for query, width in zip(queries, widths, strict=True)
    )
    node = m.Call("side_by_side", shares, (), (q.type,), q.span)
    value = frame.compute(f"queries of {name}", (total,), "f32", node)
    pieces, at = [], 0
    for buffer, width in zip(buffers, widths, strict=True):
        pieces.append(p.Piece(buffer, at, heads * width))
        at += heads * width
    over = build.schedule.over_positions
    frame.exchange(p.Collective(f"{name} queries", GATHER, Wire.F32, over, value, "", 0, total, q.span,
                              tuple(pieces)))  # fmt: skip


def merge(name: str, found: Node, shape: tuple[int, int], call: m.Call, frame: Frame) -> Node:
    """This core's heads over all positions, `[rows, *shape]`, of those of all heads over its own."""
    build, (heads, width) = frame.build, shape
    assert isinstance(found, m.Local)
    result = build.buffer(f"{name} merged", (build.rows, *whole_lanes(shape)), "f32", frame.place, call.span)
    build.views[result] = p.View(result, 0, shape)
    columns = heads * (whole_lanes((width,))[0] + LANES)
    frame.exchange(p.Collective(result, SOFTMAX_MERGE, Wire.F32, build.schedule.over_positions, found.name, result, 0,
                              columns, call.span))  # fmt: skip
    return frame.local(result, call.type, call)
