"""Ops that read along an axis of which each core has a share: completed by an exchange, or refused."""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

from ...collectives.collective import Wire
from ...collectives.gather import GATHER
from ...diagnostics import Diagnostic, Label, MksError
from ...model import ir as m
from ...model import ops as registry
from ...model.calls import operands_of
from ...model.ir import Node, Type
from ...model.shapes import Poly
from ...records import frozen
from ...targets.lanes import LANES
from .. import ir as p
from .build import cannot
from .frame import Frame
from .partials import number
from .reduce import norm_of_share


@frozen
class Cut:
    """An axis of an op's operand that it reads along, and that cores share out over `axes` of the mesh."""

    axis: Poly
    axes: tuple[str, ...]


def cut_along(call: m.Call, frame: Frame) -> tuple[Cut, ...]:
    """The axes that a call reads along and of which a core has a share only, by the rule of its op."""
    op = registry.find(call.op)
    assert op is not None
    found = {}
    for axis in op.along(operands_of(call, op)):
        if over := frame.build.shares.over_values(axis):
            found[axis] = Cut(axis, over)
    return tuple(found.values())


def whole_along(call: m.Call, frame: Frame) -> m.Call:
    """A call whose operands are complete, with what cores lack of the axes that it reads along brought together.

    Raises `MksError` (E219) where that is not done.
    """
    cut = cut_along(call, frame)
    if not cut:
        return call
    made = COMPLETED.get(call.op)
    if made is None or len(cut) > 1 or len(call.type.shape) != 1:
        raise refused(call, cut[0], frame)
    return made(call, cut[0], frame)


def refuse_along(call: m.Call, frame: Frame) -> None:
    """For ops that nothing completes. Raises `MksError` (E219)."""
    for cut in cut_along(call, frame):
        raise refused(call, cut, frame)


def refused(call: m.Call, cut: Cut, frame: Frame) -> MksError:
    """That a core has a share only of what an op reads along."""
    schedule, over = frame.build.schedule, ", ".join(f"`{axis}`" for axis in cut.axes)
    done = f"{', '.join(f'`{name}`' for name in COMPLETED)} of a vector are completed by an exchange"
    here = Label(call.span, "here")
    names = sorted({atom.name for atom in cut.axis.atoms} & schedule.shards.keys())
    said = f"`{call.op}` reads along an axis of `{cut.axis}`, which is shared out over {over}"
    return MksError(
        [
            Diagnostic(
                "E219",
                said,
                Label(schedule.shards[names[0]].span),
                (here,),
                (f"each of {schedule.ways(cut.axes)} cores has a share of it; {done}",),
                (f"leave `{names[0]}` whole",),
            )
        ]
    )


def own_columns(x: Node, axis: Poly, fill: float, frame: Frame) -> Node:
    """A core's share of a vector with something else for its padding, where shares are not all as long."""
    shares = frame.build.shares
    ways = frame.build.schedule.ways(shares.over_values(axis)) // shares.repeats(axis)
    whole = shares.instance.length(axis)
    if ways * shares.length(axis) == whole:
        return x
    return _masked(x, axis, number(whole, x), fill)


def _masked(x: Node, axis: Poly, used: m.Static, fill: float) -> m.Call:
    return m.Call("mask_of_share", (x,), (("used", used), ("fill", number(fill, x))), (Type("f32", (axis,)),), x.span)


def _rms_norm(call: m.Call, cut: Cut, frame: Frame) -> m.Call:
    shares = frame.build.shares
    count = shares.instance.length(cut.axis) * shares.repeats(cut.axis)
    return norm_of_share(
        evolve(call, args=(own_columns(call.args[0], cut.axis, 0, frame), call.args[1])), cut.axes, count, frame
    )


def _l2_norm(call: m.Call, cut: Cut, frame: Frame) -> m.Call:
    """As the other norm, of a count that makes the mean a sum."""
    x = own_columns(call.args[0], cut.axis, 0, frame)
    gain = number(1, call)
    norm = m.Call("rms_norm", (x, gain), call.options, call.types, call.span)
    return norm_of_share(norm, cut.axes, frame.build.shares.repeats(cut.axis), frame)


def _softmax(call: m.Call, cut: Cut, frame: Frame) -> m.Call:
    """Each core's largest and its sum travel; all scale their own numbers by those of all."""
    build, x = frame.build, own_columns(call.args[0], cut.axis, float("-inf"), frame)
    name, ways, lanes = frame.fresh("softmax"), build.schedule.ways(cut.axes), Type("f32", (Poly.of(LANES),))
    sums_ = m.Call("softmax_sums", (x,), (), (lanes,), call.span)
    value = frame.compute(p.PartRef(p.Role.SHARE, name), (LANES,), "f32", sums_)
    result = build.held(p.PartRef(p.Role.COMPLETE, name), (ways * LANES,), "f32", frame.place, call.span)
    frame.exchange(
        p.Collective(
            p.OfOpRef(name), GATHER, Wire.F32, cut.axes, value, None, 0, LANES, call.span, (p.Piece(result, 0, LANES),)
        )
    )
    sums = frame.read(result, Type("f32", (Poly.of(ways * LANES),)), call)
    options = (("repeats", number(build.shares.repeats(cut.axis), call)),)
    return m.Call("softmax_of_share", (x, sums), options, call.types, call.span)


def _mask(call: m.Call, cut: Cut, frame: Frame) -> m.Call:
    """A core knows the number of its first element: nothing travels."""
    ((_, used),) = call.options
    if used.depends:
        raise cannot("mask from an index that depends on the layer", used.span)
    return _masked(call.args[0], cut.axis, used, float("-inf"))


COMPLETED: dict[str, Callable[[m.Call, Cut, Frame], m.Call]] = {
    "rms_norm": _rms_norm,
    "l2_norm": _l2_norm,
    "softmax": _softmax,
    "mask": _mask,
}
