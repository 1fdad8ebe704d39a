"""Routing, and the products with what it chooses."""

from __future__ import annotations

from attrs import evolve

from ...model import ir as m
from ...model.expressions import walk
from ...model.ir import Node, Type
from ...source import Span
from .. import ir as p
from .along import refuse_along
from .build import Build, cannot, layer_scalar, sharded_over
from .expert_pools import expert_bank
from .frame import Frame
from .partials import axes
from .reduce import complete
from .sharded_value import ShardedValue

# Experts that no schedule line fetches go through so many slots.
SLOTS = 2


def route(statement: m.Assign, call: m.Call, frame: Frame) -> None:
    """The weights of all experts, and which of this core's were chosen by any row."""
    build, (score, bias) = frame.build, call.args
    refuse_along(call, frame)
    experts = build.shares.instance.length(score.type.shape[0])
    scores = frame.compute(
        frame.fresh("score"), (experts,), "f32", complete(frame.split(score, frame), score.type, frame)
    )
    for option, static in call.options:
        if static.depends and option not in ("eps", "scale"):
            raise cannot(f"choose experts by a `{option}` that depends on the layer", static.span)
        layer_scalar(build, static)
    name = p.ValueRef(frame.place, statement.names[0])
    build.held(name, (experts,), "f32", frame.place, statement.span)
    bank = p.ExpertPoolRef(frame.place)
    frame.ops.append(p.Route(scores, evolve(call, args=(frame.read(scores, score.type, score), bias)), name, bank))
    if any(fetch.part == frame.place for fetch in build.schedule.fetches):
        # Transfers under way share the rate: the first comes sooner if the others set out after it.
        frame.ops.append(p.Fetch(bank, 0, 1))


def experts(node: m.Experts, frame: Frame) -> ShardedValue:
    """A weighted sum over the chosen experts: on each core a share of it where experts or their inputs are cut."""
    build, place = frame.build, frame.place
    if not isinstance(node.routes, m.Local):
        raise cannot("routes that have no name", node.span)
    routes = p.ValueRef(place, node.routes.name)
    fetched = next((fetch for fetch in build.schedule.fetches if fetch.part == place), None)
    bank = expert_bank(build, place, node, fetched.slots if fetched else SLOTS, routes, _top(node, frame))
    inner = evolve(frame, ops=[], parameter=node.parameter, done=set())
    value = frame.split(node.body, inner)
    body = value.partial if value.partial is not None else value.whole
    assert body is not None
    if value.partial is not None and value.whole is not None:
        raise cannot("add to an expert's sum", node.span)
    shape = build.shares.shape(node.type.shape)
    out = _product(body, shape, inner) or inner.compute(frame.fresh("expert"), shape, "f32", body)
    frame.count = inner.count
    result = build.held(frame.fresh("experts"), shape, "f32", place, node.span)
    once, each = _once(inner, node.span)
    frame.ops += once
    begun = 0 if fetched is None else 1
    if begun < bank.slots:
        frame.ops.append(p.Fetch(bank.name, begun, bank.slots))
    frame.ops += [p.Experts(bank.name, tuple(each), out, result)]
    local: Node = frame.read(result, Type("f32", node.type.shape), node)
    over = {axis for names in bank.products for weight in names for axis in _cut(build, weight)}
    return ShardedValue(local, None, tuple(a for a in axes(frame) if a in over)) if over else ShardedValue(None, local)


def _product(body: Node, shape: tuple[int, ...], frame: Frame) -> p.BufferRef | None:
    """The buffer of a product that is, as it is, what an expert gives."""
    view, build = frame.view_of(body) if isinstance(body, m.Read) else None, frame.build
    whole = view is not None and build.buffers[view.buffer].shape == (build.rows, *shape)
    return view.buffer if view is not None and whole else None


def _once(inner: Frame, span: Span) -> tuple[list[p.Op], list[p.Op]]:
    """What is the same for all experts, and what is done for each."""
    made = set[p.BufferRef]()
    once: list[p.Op] = []
    each: list[p.Op] = []
    for op in inner.ops:
        if isinstance(op, p.ExpertDot):
            made.add(op.result)
            each.append(op)
        elif isinstance(op, p.Compute):
            views = [inner.view_of(node) for node in walk(op.node)]
            own = bool(made & {view.buffer for view in views if view is not None})
            made.update(op.outputs if own else ())
            (each if own else once).append(op)
        else:
            raise cannot("multiply by a matrix that is no expert's inside the experts' body", span)
    return once, each


def _cut(build: Build, weight: str) -> tuple[str, ...]:
    """Along which axes of the mesh experts, or what a product sums over, are shared out."""
    experts, _, inputs = build.schedule.model.weights[weight].shape
    return (*sharded_over(build, experts), *sharded_over(build, inputs))


def _top(node: m.Experts, frame: Frame) -> int:
    """How many experts a row chooses."""
    return frame.build.shares.instance.length(node.routes.type.shape[1])


def expert_matmul(call: m.Call, frame: Frame) -> ShardedValue:
    """A product with a chosen expert's matrix: with those that share its operand, as the bank has them together."""
    build, (indexed, x) = frame.build, call.args
    assert isinstance(indexed, m.Call)
    weight = indexed.args[0]
    assert isinstance(weight, m.WeightRef)
    bank = build.banks[p.ExpertPoolRef(frame.place)]
    number = next(i for i, names in enumerate(bank.products) if weight.name in names)
    if weight.name not in frame.done:
        frame.done.update(bank.products[number])
        operand = complete(frame.split(x, frame), x.type, frame)
        name = p.ProductRef(frame.place, bank.products[number])
        tiles = bank.layout.products[number].tiling
        held = build.buffer(
            p.PartRef(p.Role.OPERAND, name),
            (build.rows, tiles.inputs),
            build.dtype(Type("bf16")),
            frame.place,
            call.span,
        )
        result = build.buffer(
            p.PartRef(p.Role.RESULT, name), (build.rows, tiles.outputs), "f32", frame.place, call.span
        )
        frame.ops += [p.Compute((held,), operand, None, x.span), p.ExpertDot(bank.name, number, held, result)]
        at = 0
        for each in bank.products[number]:
            rows = build.shares.weight_shape(build.schedule.model.weights[each])[1]
            build.views[p.MatmulRef(each)] = p.View(result, at, (rows,))
            at += rows
    return partial_product(build, weight, frame.read(build.product_of(weight.name, frame.place), call.type, call))


def partial_product(build: Build, weight: m.WeightRef, local: Node) -> ShardedValue:
    """An expert's product: a share of a sum on each core that has some of its inputs."""
    inputs = build.schedule.model.weights[weight.name].shape[2]
    if build.shares.repeats(inputs) > 1:
        raise cannot("share out experts' inputs of which several cores hold the same", local.span)
    over = sharded_over(build, inputs)
    return ShardedValue(local, None, over) if over else ShardedValue(None, local)
