"""Products with weights: what is multiplied together, and the loop over its tiles."""

from __future__ import annotations

from ...model import ir as m
from ...model.expressions import walk
from ...schedule.ir import Group
from .. import ir as p
from .build import DIRECT, cannot, product, split_over, summed_over
from .frame import Frame, Mark
from .partials import axes, number
from .reduce import complete, gather
from .sharded_value import ShardedValue, whole


def matmul(call: m.Call, frame: Frame) -> ShardedValue:
    """A product's value; it is computed with all that share its operand where the first of them is needed."""
    weight, x = call.args
    if not isinstance(weight, m.WeightRef):
        raise cannot("multiply by a matrix that is no weight", call.span)
    if len(x.type.shape) != 1:
        raise cannot("multiply several vectors by a matrix at once", call.span)
    if weight.name not in frame.done:
        _together(call, frame)
    local = frame.read(frame.build.product_of(weight.name, frame.place), call.type, call)
    cut = weight.name in frame.build.shares.of_scattered
    if cut and isinstance(x, m.Call) and x.op == "rms_norm":
        return ShardedValue(None, None, axes(frame), local, x)
    declared, shares = frame.build.schedule.model.weights[weight.name], frame.build.shares
    over = axes(frame) if cut else summed_over(frame.build, weight.name)
    if not over:
        return whole(local)
    repeats = shares.repeats(declared.shape[-1])
    if repeats == 1:
        return ShardedValue(local, None, over)
    # So many cores hold the same inputs: each gives its part of what they make.
    return ShardedValue(m.Call("div", (local, number(repeats, call)), (), (call.type,), call.span), None, over)


def _together(call: m.Call, frame: Frame) -> None:
    build, (weight, x) = frame.build, call.args
    assert isinstance(weight, m.WeightRef)
    members = frame.groups[weight.name]
    frame.done.update(members)
    cut = weight.name in build.shares.of_scattered
    if cut and isinstance(x, m.Call) and x.op == "rms_norm":
        # What it is divided by is the same for all columns: it can wait until the product's sum is complete.
        x = m.Call("mul", x.args, (), x.types, x.span)
    value = frame.split(x, frame)
    operand = value.own if cut and value.own is not None else complete(value, x.type, frame)
    named = frame.buffer_of(operand)
    fits = named is not None and build.buffers[named].dtype == build.dtype(weight.type)
    made = product(build, frame.place, members, named if fits else None, call.span)
    if made.operand != named:
        frame.ops.append(p.Compute((made.operand,), operand, None, x.span))
    frame.ops += [Mark("before", f"{frame.place}.{w.split('.')[-1]}") for w in members]
    frame.ops += loops(made)
    frame.ops += [Mark("after", f"{frame.place}.{w.split('.')[-1]}") for w in members]
    _gathers(made, frame)


def _gathers(made: p.Product, frame: Frame) -> None:
    """Shared-out rows come together, with what the schedule sends beside them, over products that it names."""
    schedule = frame.build.schedule
    cut = [w for w in made.weights if split_over(frame.build, w)]
    if any(frame.build.shares.over_values(schedule.model.weights[w].shape[0]) for w in cut):
        raise cannot(
            "bring rows together of which each core shall have a share",
            made.span,
            "leave out `split`, or the size out of `shard`",
        )
    while cut:
        values = {w: _values_of(w, frame) for w in cut}
        line = next((g for g in schedule.gathers if set(g.values) & values[cut[0]]), None)
        sent = [cut[0]] if line is None else [w for w in cut if set(line.values) & values[w]]
        cut = [w for w in cut if w not in sent]
        start = gather(tuple(sent), made, frame)
        frame.ops.append(start)
        for overlap in schedule.overlaps:
            if overlap.verb == "gather" and any(set(overlap.values) & values[w] for w in sent):
                for group in overlap.groups:
                    _early(group, frame)
        frame.ops.append(p.Receive(start.exchange))


def _values_of(weight: str, frame: Frame) -> set[str]:
    return {v for made in frame.build.facts.products_of(weight) for v in made.values}


def _early(group: Group, frame: Frame) -> None:
    """A product that the schedule places inside a wait."""
    for statement in frame.statements:
        for node in walk(statement.value):
            if (
                isinstance(node, m.Call)
                and node.op == "matmul"
                and isinstance(node.args[0], m.WeightRef)
                and node.args[0].name in group.weights
                and node.args[0].name not in frame.done
            ):
                _together(node, frame)


def loops(made: p.Product) -> list[p.Op]:
    """Wait for an iteration's tiles, multiply, and let the slots' next transfers set out."""
    streamed = isinstance(made.ring, p.StreamRef)
    found: list[p.Op] = []
    for i, run in enumerate(made.tiling.runs):
        start = p.Start(made.ring, len(run.rows))
        work: tuple[p.Op, ...] = (p.Wait(made.ring, run.rows), p.Dot(made.name, i))
        if streamed:
            work = (*work, start)
        elif made.ring == DIRECT:
            work = (start, *work)
        found += work if run.count == 1 else [p.Repeat("block", run.count, work)]
    return found
