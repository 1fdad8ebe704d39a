"""What sums over cores are made of: their names, this core's shares, and the squares that a norm divides by."""

from __future__ import annotations

from ...model import ir as m
from ...model.ir import Node, Type
from ...model.shapes import Poly
from ...targets.lanes import LANES
from ...text import syntax as s
from .. import ir as p
from .build import cannot, layer_scalar
from .frame import Frame


def named(type_: Type, node: Node, frame: Frame) -> tuple[p.SumRef, int]:
    """The name of a sum that the statement at hand completes, and its length."""
    name, shape = p.SumRef(frame.place, frame.value), frame.build.shares.shape(type_.shape)
    if len(shape) != 1:
        raise cannot("sum matrices over cores", node.span)
    if {name, p.ColumnsRef(name)} & frame.build.exchanges.keys():
        name = p.SumRef(frame.place, frame.value, frame.next_number())
    return name, shape[0]


def share(name: p.SumRef, width: int, node: Node, frame: Frame) -> p.BufferRef:
    """The buffer of this core's share of a sum: a product's as it is, if there is one."""
    if isinstance(node, m.Call) and node.op == "f32":
        node = node.args[0]
    view = frame.view_of(node) if isinstance(node, m.Read) else None
    if view is not None and (view.start, view.shape, frame.build.buffers[view.buffer].dtype) == (0, (width,), "f32"):
        return view.buffer
    return frame.compute(p.PartRef(p.Role.SHARE, name), (width,), "f32", node)


def squares(norm: m.Call) -> Node:
    """This core's share of the sum of a norm's squares, in so many lanes."""
    return m.Call("squares_in_lanes", norm.args[:1], (), (Type("f32", (Poly.of(LANES),)),), norm.span)


def normed(value: Node, squares: Node, norm: m.Call, type_: Type, frame: Frame) -> Node:
    """A sum over the root of a mean whose squares have come."""
    count = number(frame.build.shares.instance.length(norm.type.shape[-1]), norm)
    for _, static in norm.options:
        layer_scalar(frame.build, static)
    return m.Call("over_root_mean", (value, squares), (*norm.options, ("count", count)), (type_,), norm.span)


def number(value: float, like: Node) -> m.Static:
    """A number that the definition does not write."""
    return m.Static(s.Number(like.span, value, str(value)), frozenset(), like.span)


def axes(frame: Frame) -> tuple[str, ...]:
    """All of the mesh's that tell cores apart."""
    return frame.build.schedule.over_all
