"""What collectives make whole."""

from __future__ import annotations

from typing import Any

from ...collectives.collective import CollectiveKind, Operation, Wire
from ...collectives.kinds import UNSAID
from ...collectives.reduce_scatter import REDUCE_SCATTER
from ...collectives.scatter_gather import SCATTER_GATHER
from ...model import ir as m
from ...targets.lanes import LANES, padded
from .. import ir as p
from ..ir.spec_access import Wrong
from .computed import Computed
from .held import Content, Cut, Held, Region, words
from .terms import Term


def side_by_side(flow: Computed, node: m.Call, buffer: p.BufferRef) -> Content:
    """Values one after the other in one message."""
    found, at = [], 0
    for arg in node.args:
        width = _width(flow, arg)
        found.append(Region(at, width, flow.evaluate(arg)))
        at += width
    view, lies = flow.program.views.get(buffer), flow.program.buffers[buffer].shape[-1]
    if at != lies or (view is not None and (view.start, view.shape) != (0, (at,))):
        raise Wrong(f"`{buffer}` has {lies} columns, or a view of others, for {at}")
    return tuple(found)


def _width(flow: Computed, arg: m.Node) -> int:
    if isinstance(arg, m.Call) and arg.op == "squares_in_lanes":
        return LANES
    if isinstance(arg, m.Call) and arg.op == "view_in_lanes":
        (width,) = (flow.number(static) for name, static in arg.options if name == "width")
        assert isinstance(width, float)
        return flow.program.shares.length(arg.type.shape[0]) * int(width)
    return flow.program.shares.length(arg.type.shape[-1])


def send(flow: Computed, op: p.Send) -> None:
    """What the buffers hold now."""
    made, held = flow.program.exchanges[op.exchange], flow.content
    for name in (made.value, made.beside):
        if name is not None and name not in held:
            raise Wrong(f"`{made.name}` sends `{name}`, which holds nothing yet")
    flow.sent[op.exchange] = held[made.value], held[made.beside] if made.beside is not None else ()


def receive(flow: Computed, op: p.Receive) -> None:
    """What has come is in its buffers."""
    made = flow.program.exchanges[op.exchange]
    if op.exchange not in flow.sent:
        raise Wrong(f"`{made.name}` is received before it is sent")
    value, beside = flow.sent.pop(op.exchange)
    rule = OPERATIONS.get(made.kind.operation)
    if rule is None:
        raise Wrong(f"no meaning is known of `{made.kind.name}`")
    rule(flow, made, value, beside)


def _summed(flow: Computed, made: p.Collective, held: Held) -> Held:
    """Over exactly the axes over which cores have shares: over more it is counted twice, over fewer not completed."""
    axes = several(flow, made.axes)
    if held.over != axes:
        has = f"shares over {words(held.over)}" if held.over else "the whole value"
        raise Wrong(f"`{made.name}` sums over {words(axes)} what cores have {has} of")
    return held._replace(over=frozenset())


def several(flow: Computed, axes: tuple[str, ...]) -> frozenset[str]:
    return frozenset(axis for axis in axes if flow.program.schedule.ways((axis,)) > 1)


def _result(made: p.Collective) -> p.BufferRef:
    if made.result is None:
        raise Wrong(f"`{made.name}` has no result")
    return made.result


def _covered(made: p.Collective, value: Content) -> None:
    if made.first or sum(each.width for each in value) != made.width:
        lies = sum(each.width for each in value)
        raise Wrong(f"`{made.name}` sends the columns {made.first} .. {made.first + made.width} of {lies}")


def _as_said(flow: Computed, made: p.Collective, value: Content) -> None:
    """In the way and the type that the schedule says; rows of a table lose nothing in their own type."""
    schedule = flow.program.schedule
    ref = made.name.sum if isinstance(made.name, p.ColumnsRef) else made.name
    said = next((r for r in schedule.reduces if isinstance(ref, p.SumRef) and ref.qualified == r.value), None)
    ways: set[tuple[CollectiveKind, Wire]] = {UNSAID} if said is None else {(said.by, said.wire)}
    if said is not None and said.by.completes_columns:
        ways.add((REDUCE_SCATTER, said.wire))
    key: Any = flow.terms.made[value[0].held.term]
    if said is None and key[0] == "index":
        table = flow.program.instance.model.weights[str(flow.terms.made[key[1]][1])]
        ways.add((SCATTER_GATHER, Wire(flow.program.instance.dtype(table.type))))
    gathers = made.kind.operation is Operation.GATHER
    if not gathers and (made.kind, made.wire) not in ways:
        by, wire = min(ways, key=lambda way: (way[0].name, way[1]))
        raise Wrong(
            f"`{made.name}` is summed `by = {made.kind}, wire = {made.wire}`; the schedule has `by = {by}, "
            f"wire = {wire}`"
        )
    if gathers and made.wire not in {wire for _, wire in ways}:
        raise Wrong(f"`{made.name}` travels as {made.wire}; the schedule has another type")


def _sum(flow: Computed, made: p.Collective, value: Content, _: Content) -> None:
    _covered(made, value)
    _as_said(flow, made, value)
    if len(value) == 1:
        flow.hold(_result(made), _summed(flow, made, value[0].held), made.width)
    else:
        flow.content[_result(made)] = tuple(each._replace(held=_summed(flow, made, each.held)) for each in value)


def _scatter(flow: Computed, made: p.Collective, value: Content, beside: Content) -> None:
    """Each core has its own columns of the sum, and what was sent beside it whole."""
    _covered(made, value)
    _as_said(flow, made, value)
    if len(value) != 1 or value[0].held.cut is not None:
        raise Wrong(f"`{made.name}` scatters what is no single value")
    axes = several(flow, made.axes)
    if axes != several(flow, flow.program.schedule.over_all):
        raise Wrong(f"`{made.name}` scatters over {words(axes)}, not over all cores")
    own = flow.program.shares.scattered(made.width)
    found = _summed(flow, made, value[0].held)._replace(cut=Cut(axes, made.width))
    if not made.pieces:
        flow.hold(_result(made), found, own)
        return
    first = padded(-(-made.width // flow.program.schedule.cores))
    places = [(piece.start, piece.width) for piece in made.pieces]
    if len(beside) != 1 or places != [(0, own), (first, beside[0].width)]:
        raise Wrong(f"the pieces of `{made.name}` lie elsewhere than {places}")
    if made.result != made.pieces[0].result:
        raise Wrong(f"`{made.name}` has two results, `{made.result}` and `{made.pieces[0].result}`")
    flow.hold(_result(made), found, own)
    flow.hold(made.pieces[1].result, _summed(flow, made, beside[0].held), beside[0].width)


def _gather(flow: Computed, made: p.Collective, value: Content, _: Content) -> None:
    """All columns of what each core has some of, or all heads."""
    axes, at = several(flow, made.axes), 0
    _as_said(flow, made, value)
    for piece in made.pieces:
        start = made.first + piece.start
        held = next((r.held for r in value if (r.start, r.width) == (start, piece.width)), None)
        if held is None or piece.start != at:
            raise Wrong(
                f"`{piece.result}` takes the columns {piece.start} .. {piece.start + piece.width} of "
                f"`{made.name}`, where no value lies"
            )
        at += piece.width
        key: Any = flow.terms.made[held.term]
        if key[0] == "view_in_lanes" and held.whole:
            flow.hold(piece.result, Held(flow.terms.atom("heads of all", key[1], (tuple(sorted(axes)),))))
            continue
        if held.over or held.cut is None or held.cut.axes != axes:
            has = words(held.cut.axes) if held.cut is not None else "no axis"
            raise Wrong(f"`{made.name}` gathers over {words(axes)} what is shared out over {has}")
        if flow.program.buffers[piece.result].shape[-1] != held.cut.length:
            raise Wrong(
                f"`{piece.result}` has {flow.program.buffers[piece.result].shape[-1]} columns of {held.cut.length}"
            )
        flow.hold(piece.result, Held(held.term), held.cut.length)
    if at != made.width:
        raise Wrong(f"`{made.name}` sends {made.width} columns, of which {at} arrive")


def _merge(flow: Computed, made: p.Collective, value: Content, _: Content) -> None:
    """Softmaxes over parts of the positions become one."""
    if len(value) != 1:
        raise Wrong(f"`{made.name}` merges what is no single value")
    found: Any = flow.terms.made[value[0].held.term]
    if found[0] != "heads of all" or found[2] != (tuple(sorted(several(flow, made.axes))),):
        raise Wrong(f"`{made.name}` merges over {words(made.axes)} what was not attended to over them")
    flow.hold(_result(made), Held(found[1]), _rank(flow, found[1]))


def _rank(flow: Computed, term: Term) -> int:
    key: Any = flow.terms.made[term]
    if key[0] != "latent":
        raise Wrong("what is merged is no latent attention")
    return int(key[-1][0])


# What a collective makes whole, by its operation; `argmax` is a part of `Argmax`.
OPERATIONS = {
    Operation.SUM: _sum,
    Operation.REDUCE_SCATTER: _scatter,
    Operation.GATHER: _gather,
    Operation.SOFTMAX_MERGE: _merge,
}
