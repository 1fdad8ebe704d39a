"""Sums and gathers over cores: where each is completed, and by which exchange."""

from __future__ import annotations

from ...collectives.collective import CollectiveKind, Operation, Wire
from ...collectives.gather import GATHER
from ...collectives.kinds import KERNELS, UNSAID, has_kernel
from ...collectives.scatter_gather import SCATTER_GATHER
from ...model import ir as m
from ...model.ir import Node, Type
from ...model.shapes import Poly
from ...schedule.ir import Reduce
from ...source import Span
from ...targets.lanes import LANES
from .. import ir as p
from .build import cannot, split_over
from .frame import Frame
from .partials import axes, named, normed, number, share, squares
from .reduce_scatter import by_columns
from .sharded_value import ShardedValue


def complete(split: ShardedValue, type_: Type, frame: Frame) -> Node:
    """The value itself; what is partial is summed over the cores first."""
    if split.complete:
        assert split.whole is not None
        return split.whole
    if frame.parameter is not None:
        raise cannot(
            "complete an expert's sum inside the experts' body",
            _span(split, frame),
            "of a product whose inputs are shared out only sums and multiples may be taken there",
        )
    said = _said(frame)
    by, wire = (said.by, said.wire) if said else _unsaid(split, frame)
    if by.operation is Operation.REDUCE_SCATTER:
        raise cannot("scatter a value that is not a sum alone", frame.statement.span)
    if said and not has_kernel(by):
        raise cannot(
            f"sum by {by}, for which no package has a kernel",
            said.span,
            f"the entry-point group `{KERNELS}` brings one",
        )
    schedule = frame.build.schedule
    unfit = by.unfit(schedule.ways(split.axes), schedule.paired(split.axes))
    if said and unfit is not None:
        over = ", ".join(f"`{axis}`" for axis in split.axes)
        raise cannot(f"sum over {over} by {by}", said.span, f"write `by = scatter_gather`: `{by}` {unfit}")
    alone = split.partial is None or split.scaled is None
    if split.own is not None or (split.scaled is not None and alone and by.completes_columns):
        summed = by_columns(split, type_, by, wire, frame)
    elif split.scaled is not None:
        summed = _scaled(split, type_, by, wire, frame)
    else:
        summed = _sum(split, type_, by, wire, frame)
    if split.whole is None:
        return summed
    return m.Call("add", (split.whole, summed), (), (type_,), summed.span)


def _span(split: ShardedValue, frame: Frame) -> Span:
    """Where a partial sum comes from."""
    node = next((n for n in (split.partial, split.scaled, split.own) if n is not None), None)
    return frame.statement.span if node is None else node.span


def _unsaid(split: ShardedValue, frame: Frame) -> tuple[CollectiveKind, Wire]:
    """A row of a table is on one core only: its own type loses nothing on the way, and there is no hurry."""
    build, node = frame.build, split.partial
    if isinstance(node, m.Read) and isinstance(node.ref, p.RowRef) and split.scaled is None:
        dtype = build.dtype(build.schedule.model.weights[node.ref.table].type)
        return SCATTER_GATHER, Wire(dtype)
    return UNSAID


def scattered(split: ShardedValue, type_: Type, frame: Frame) -> Node | None:
    """Where the schedule leaves a sum scattered: this core's columns of it."""
    said = _said(frame)
    alone = split.whole is None and split.scaled is None and split.own is None
    if said is None or said.by.operation is not Operation.REDUCE_SCATTER or split.partial is None or not alone:
        return None
    if frame.value in frame.build.carried:
        raise cannot(
            f"leave `{frame.value}` scattered, which the layers carry",
            said.span,
            "every part reads it whole: name the sum by itself, or write `by = scatter_gather`",
        )
    if split.axes != axes(frame):
        raise cannot("leave a sum scattered that is not over all cores", said.span, "write `by = scatter_gather`")
    frame.scattered.add(frame.value)
    return _sum(split, type_, said.by, said.wire, frame)


def _said(frame: Frame) -> Reduce | None:
    return next(
        (r for r in frame.build.schedule.reduces if r.value == f"{frame.build.home(frame.place)}.{frame.value}"), None
    )


def _sum(split: ShardedValue, type_: Type, by: CollectiveKind, wire: Wire, frame: Frame) -> Node:
    build, node = frame.build, split.partial
    assert node is not None
    name, width = named(type_, node, frame)
    value = share(name, width, node, frame)
    scatter = by.operation is Operation.REDUCE_SCATTER
    columns = build.shares.scattered(width) if scatter else width
    result = build.held(p.PartRef(p.Role.COMPLETE, name), (columns,), "f32", frame.place, node.span)
    late = frame.value if scatter else None
    frame.exchange(p.Collective(name, by, wire, split.axes, value, result, 0, width, node.span), late)
    return frame.read(result, type_, node)


def _scaled(split: ShardedValue, type_: Type, by: CollectiveKind, wire: Wire, frame: Frame) -> Node:
    """One message with the share that a norm divides, the share that it does not, and that of the norm's squares."""
    build, node, norm = frame.build, split.scaled, split.norm
    assert node is not None
    assert norm is not None
    name, width = named(type_, node, frame)
    shares = tuple(each for each in (split.partial, node, squares(norm)) if each is not None)
    total = (len(shares) - 1) * width + LANES
    message = m.Call("side_by_side", shares, (), (type_,), node.span)
    value = frame.compute(p.PartRef(p.Role.SHARE, name), (total,), "f32", message)
    result = build.buffer(p.PartRef(p.Role.SUM, name), (build.rows, total), "f32", frame.place, node.span)
    frame.exchange(p.Collective(name, by, wire, split.axes, value, result, 0, total, node.span))
    found = []
    for i in range(len(shares)):
        build.views[p.PartRef(p.Role.COMPLETE, name, i)] = p.View(
            result, i * width, (LANES if i == len(shares) - 1 else width,)
        )
        found.append(frame.read(p.PartRef(p.Role.COMPLETE, name, i), type_, node))
    divided = normed(found[-2], found[-1], norm, type_, frame)
    return divided if len(shares) == 2 else m.Call("add", (found[0], divided), (), (type_,), node.span)


def gather(weights: tuple[str, ...], product: p.Product, frame: Frame) -> p.Send:
    """Rows that were shared out come together: one message for weights that lie side by side in the product."""
    build, over = frame.build, split_over(frame.build, weights[0])
    if any(split_over(build, weight) != over for weight in weights):
        raise cannot("gather values in one message that are shared out over different axes", product.span)
    names = [build.product_view(weight, frame.place) for weight in weights]
    views = [build.views[name] for name in names]
    start, end = views[0].start, views[-1].start + views[-1].shape[0]
    if sum(view.shape[0] for view in views) != end - start:
        raise cannot("gather values in one message that do not lie side by side", product.span)
    name = p.GatherRef(p.ProductRef(frame.place, weights))
    pieces, at = [], 0
    for weight, name_, view in zip(weights, names, views, strict=True):
        whole = build.shares.instance.length(build.schedule.model.weights[weight].shape[0])
        result = build.buffer(p.GatheredRef(weight), (build.rows, whole), "f32", frame.place, product.span)
        build.views[name_] = p.View(result, 0, (whole,))
        pieces.append(p.Piece(result, at, view.shape[0]))
        at += view.shape[0]
    build.exchanges[name] = p.Collective(
        name, GATHER, Wire.F32, over, product.result, None, start, at, product.span, tuple(pieces)
    )
    return p.Send(name)


def norm_of_share(call: m.Call, over: tuple[str, ...], count: int, frame: Frame) -> m.Call:
    """An RMS norm of a value that cores share out over axes of the mesh: the sum of its `count` squares travels."""
    build, (x, gain), one = frame.build, call.args, (Poly.of(1),)
    squares = frame.fresh("squares")
    value = frame.compute(
        p.PartRef(p.Role.SHARE, squares), (1,), "f32", m.Call("sum_squares", (x,), (), (Type("f32", one),), call.span)
    )
    result = build.held(p.PartRef(p.Role.COMPLETE, squares), (1,), "f32", frame.place, call.span)
    frame.exchange(p.Collective(p.OfOpRef(squares), *UNSAID, over, value, result, 0, 1, call.span))
    total = frame.read(result, Type("f32", one), call)
    options = (*call.options, ("count", number(count, call)))
    return m.Call("rms_norm_of_share", (x, total, gain), options, call.types, call.span)
