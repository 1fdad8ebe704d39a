"""Sums of which each core completes its own columns, to which values are added that are left scattered."""

from __future__ import annotations

from ...collectives.collective import CollectiveKind, Wire
from ...collectives.gather import GATHER
from ...collectives.reduce_scatter import REDUCE_SCATTER
from ...model import ir as m
from ...model.ir import Node, Type
from ...targets.lanes import LANES, padded
from .. import ir as p
from .build import cannot
from .frame import Frame
from .partials import axes, named, normed, share, squares
from .sharded_value import ShardedValue


def by_columns(split: ShardedValue, type_: Type, by: CollectiveKind, wire: Wire, frame: Frame) -> Node:
    """Each core completes its own columns, to which those are added that are left scattered; then all come together.

    The squares of a value that is not normalised yet go to every core.
    """
    build, node = frame.build, split.scaled if split.partial is None else split.partial
    every, both = axes(frame), split.partial is not None and split.scaled is not None
    if both or split.axes != every or (node is not None and not by.completes_columns):
        raise cannot(
            "add a value that is left scattered to this sum",
            frame.statement.span,
            "write `by = scatter_gather` for the sum",
        )
    like = node if node is not None else split.own
    assert like is not None
    name, width = named(type_, like, frame)
    terms = [term for term in (_own_sum(split, type_, name, width, wire, frame), split.own) if term is not None]
    own = terms[0] if len(terms) == 1 else m.Call("add", tuple(terms), (), (type_,), like.span)
    columns = build.shares.scattered(width)
    value = frame.compute(p.PartRef(p.Role.OWN, name), (columns,), "f32", own)
    result = build.held(p.PartRef(p.Role.COMPLETE, name), (width,), "f32", frame.place, like.span)
    frame.exchange(
        p.Collective(
            p.ColumnsRef(name), GATHER, wire, every, value, None, 0, columns, like.span, (p.Piece(result, 0, columns),)
        )
    )
    return frame.read(result, type_, like)


def _own_sum(split: ShardedValue, type_: Type, name: p.SumRef, width: int, wire: Wire, frame: Frame) -> Node | None:
    """This core's columns of a sum; normalised, if what was multiplied is not yet."""
    build, norm, node = frame.build, split.norm, split.scaled if split.partial is None else split.partial
    if node is None:
        return None
    columns, value = build.shares.scattered(width), share(name, width, node, frame)
    result = build.held(p.PartRef(p.Role.SUM, name), (columns,), "f32", frame.place, node.span)
    local: Node = frame.read(result, type_, node)
    pieces: tuple[p.Piece, ...] = ()
    beside: p.BufferRef | None = None
    if norm is not None:
        beside = frame.compute(p.PartRef(p.Role.SQUARES, name), (LANES,), "f32", squares(norm))
        total = build.held(p.PartRef(p.Role.TOTAL_SQUARES, name), (LANES,), "f32", frame.place, norm.span)
        pieces = (p.Piece(result, 0, columns), p.Piece(total, padded(-(-width // build.schedule.cores)), LANES))
        local = normed(local, frame.read(total, type_, node), norm, type_, frame)
    frame.exchange(
        p.Collective(name, REDUCE_SCATTER, wire, split.axes, value, result, 0, width, node.span, pieces, beside)
    )
    return local
