"""What each op of a part makes of what it reads: `MAKES` has a row for each; any other is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...model import ir as m
from .. import ir as p
from ..ir.resources import Product
from ..ir.spec_access import Wrong
from . import computed_collectives
from .computed import Computed
from .computed_attention import attend, attend_block
from .defined import guard_of, put
from .held import Cut, Held, Region, complete, words
from .op_terms import product, rounded


def _dot(flow: Computed, op: p.Dot) -> None:
    made, terms = flow.program.products[op.product], flow.terms
    x = flow.region(made.operand, 0, None, made.operand)
    if op.run and flow.operands.get(made.name) != x:
        raise Wrong(f"the operand of `{made.name}` changes between its tiles")
    flow.operands[made.name] = x
    if op.run + 1 < len(made.tiling.runs):
        return
    if x.over:
        raise Wrong(f"`{made.name}` multiplies a share of a sum over {words(x.over)}")
    if made.piece:
        weight = terms.atom("weight", made.weights[0])
        flow.hold(made.result, Held(terms.atom(made.piece, weight, complete(x, made.name.label).term)), made.widths[0])
        return
    found, at = [], 0
    for name, width in zip(made.weights, made.widths, strict=True):
        found.append(Region(at, width, _multiplied(flow, made, name, x)))
        at += width
    _lie(
        flow,
        [(name, each) for name, each in zip(made.weights, found, strict=True) if each.held.cut is None],
        made.result,
    )
    flow.content[made.result] = tuple(found)


def _lie(flow: Computed, products: list[tuple[str, Region]], buffer: p.BufferRef) -> None:
    """Who reads a weight's product looks where it lies; of one that is multiplied twice, at either."""
    for name in dict.fromkeys(name for name, _ in products):
        places = [(buffer, each.start, (each.width,)) for other, each in products if other == name]
        known = flow.program.product_at(flow.place, name)
        view = None if known is None else flow.program.views[known]
        if view is not None and (view.buffer, view.start, view.shape) not in places:
            shown = f"{view.start} .. {view.start + sum(view.shape)} of `{view.buffer}`"
            _, start, (width,) = places[0]
            raise Wrong(
                f"a product with `{name}` lies in {start} .. {start + width} of `{buffer}`; its view shows {shown}"
            )


def _multiplied(flow: Computed, made: Product, name: str, x: Held) -> Held:
    """One weight's rows of a product: partial where the sum runs over a sharded axis, and cut where rows are."""
    schedule, instance, shares = flow.program.schedule, flow.program.instance, flow.program.shares
    shape, split = instance.model.weights[name].shape, schedule.splits.get(name)
    over = frozenset(shares.over(shape[-1]))
    if (name in flow.program.shares.of_scattered) != (x.cut is not None):
        raise Wrong(f"`{made.name}` multiplies `{name}`, of which a core has other columns than of its operand")
    if x.cut is not None:
        over = x.cut.axes
    axes = frozenset() if split is None else computed_collectives.several(flow, split.axes)
    cut = Cut(axes, instance.length(shape[0])) if axes else None
    found = product(flow.terms, flow.terms.atom("weight", name), x.term)
    # Where so many cores hold the same inputs, their sum is so many times the product.
    times = flow.terms.number(1 if x.cut is not None else shares.repeats(shape[-1]))
    return Held(flow.terms.mul(times, found), over, cut)


def _compute(flow: Computed, op: p.Compute) -> None:
    if len(op.outputs) == 1 and isinstance(op.node, m.Call) and op.node.op == "side_by_side":
        flow.content[op.outputs[0]] = computed_collectives.side_by_side(flow, op.node, op.outputs[0])
        if guard_of(flow, op.guard) is not None:
            raise Wrong(f"`{op.outputs[0]}` is computed in some layers only")
        return
    found, several = flow.evaluate(op.node), len(op.outputs) > 1
    for i, name in enumerate(op.outputs):
        held = found._replace(term=flow.terms.atom("item", found.term, (i,))) if several else found
        if isinstance(name, p.ValueRef) and name in flow.said.values:
            flow.write(name, held, op.guard)
            continue
        if guard_of(flow, op.guard) is not None:
            raise Wrong(f"`{name}` is computed in some layers only")
        term = rounded(flow.terms, held.term, flow.program.buffers[name].dtype)
        flow.hold(name, held._replace(term=term), _width(flow, name, held))


def _width(flow: Computed, name: p.BufferRef, held: Held) -> int | None:
    """The columns of an unnamed value: a cache's entry lies in whole lanes, and of what is cut a core has its share."""
    program = flow.program
    cache = name.cache if isinstance(name, p.EntryRef) else None
    state = program.instance.model.states.get(cache.state) if isinstance(cache, p.ModelCacheRef) else None
    sums = flow.terms.made[held.term][0] == "softmax sums"  # of which each core has as many
    if held.cut is not None and not sums:
        # An operand is padded to what its product takes.
        own, columns = program.shares.scattered(held.cut.length), program.buffers[name].shape[-1]
        operand = next((made for made in program.products.values() if made.operand == name), None)
        if columns != (own if operand is None else operand.tiling.inputs) or columns < own:
            raise Wrong(f"`{name}` has {columns} columns for a share of {held.cut.length}")
    return None if state is None else program.shares.length(state.type.shape[-1])


def _put(flow: Computed, op: p.Put) -> None:
    value, old = complete(flow.evaluate(op.node), f"`{op.buffer}`"), flow.state(op.buffer.state).term
    flow.hold(op.buffer, Held(put(flow.terms, old, flow.number(op.index), value.term, guard_of(flow, op.guard))))


def _keep(flow: Computed, op: p.Keep) -> None:
    """A cache's entry, in the layer's element: what the other layers have there they keep."""
    value = complete(flow.evaluate(op.node), f"`{op.buffer}`")
    flow.saved[op.buffer] = Held(rounded(flow.terms, value.term, flow.program.buffers[op.buffer].dtype))


def _row_loop(flow: Computed, op: p.RowLoop) -> None:
    """Any row, from whatever the row before has left in what is carried."""
    said = flow.said.begun
    if {one for _, one in op.carried} != said.keys():
        raise Wrong(f"`{op.place}` carries other values from row to row than the definition")
    for whole, one in op.carried:
        held = complete(flow.seen(flow.program.views[whole], whole), f"`{op.place}`")
        if held.term != said[one][0]:
            raise Wrong(flow.differs(one, held.term, said[one][0]))
        flow.hold(one, Held(said[one][1]))
    outer, flow.place = flow.place, op.place
    flow.run(op.body)
    flow.place = outer


def _argmax_value(flow: Computed, op: p.ArgmaxValue) -> None:
    x = complete(flow.region(op.value, 0, None, op.value), "`argmax`")
    flow.hold(op.result, Held(flow.terms.atom("argmax", x.term, flow.options(op.call))))


def _loaded(flow: Computed, op: p.CopyWait) -> None:
    copy = flow.program.copies[op.copy]
    if isinstance(copy.array, p.TapsRef):
        flow.hold(copy.buffer, Held(flow.terms.atom("input", copy.array.tap)))
        return
    flow.hold(copy.buffer, Held(flow.terms.atom("array", copy.array)))


def _save(flow: Computed, op: p.StoreStart) -> None:
    flow.saved[op.copy] = flow.region(flow.program.copies[op.copy].buffer, 0, None, op.copy)


def _lookup(flow: Computed, op: p.Lookup) -> None:
    """Rows that another core has are zero: a share of a sum."""
    terms, program = flow.terms, flow.program
    name = op.table.weight
    table = program.instance.model.weights[name]
    over = frozenset(program.shares.over(table.shape[0])) if op.share is not None else frozenset()
    found = terms.atom("index", terms.atom("weight", name), flow.evaluate(op.index).term, ())
    flow.hold(op.buffer, Held(found, over), program.instance.length(table.shape[1]))


def _turns(flow: Computed, op: p.RopeTables) -> None:
    step = flow.program.phase_of(flow.place).step
    key = p.rope_key(op.call, op.channels, flow.program.instance, step.name)
    for buffer, what in ((op.cos, "cosines"), (op.sin, "sines")):
        flow.hold(buffer, Held(flow.terms.atom(what, (key,))))


def _route(flow: Computed, op: p.Route) -> None:
    scores = complete(flow.region(op.scores, 0, None, op.scores), "`route`")
    bias, options = complete(flow.evaluate(op.call.args[1]), "`route`"), flow.options(op.call)
    flow.write(op.weights, Held(flow.terms.atom("route", scores.term, bias.term, options)))
    flow.routed[op.bank] = flow.region(op.weights, 0, None, op.weights).term


def _expert_dot(flow: Computed, op: p.ExpertDot) -> None:
    bank, instance = flow.program.banks[op.bank], flow.program.instance
    x = complete(flow.region(op.operand, 0, None, op.operand), "an expert")
    found, at = [], 0
    for name, width in zip(bank.products[op.product], bank.layout.products[op.product].widths, strict=True):
        over = frozenset(flow.program.shares.over(instance.model.weights[name].shape[-1]))
        term = product(flow.terms, flow.terms.atom("expert", name), x.term)
        found.append(Region(at, width, Held(term, over)))
        at += width
    _lie(flow, list(zip(bank.products[op.product], found, strict=True)), op.result)
    flow.content[op.result] = tuple(found)


def _experts(flow: Computed, op: p.Experts) -> None:
    """A core adds up its own experts, of each perhaps a share."""
    bank = flow.program.banks[op.bank]
    flow.run(op.body)
    flow.at = op
    value, routes = flow.region(op.value, 0, None, op.value), flow.region(bank.routes, 0, None, bank.routes)
    if flow.routed.get(op.bank) != routes.term:
        raise Wrong(f"`{op.bank}` are weighted by other routes than they were chosen by")
    if value.cut is not None:
        raise Wrong(f"`{op.bank}` add up some columns of a value")
    found = flow.terms.atom("experts", routes.term, value.term)
    flow.hold(op.result, Held(found, value.over | frozenset(bank.axes)))


def _repeat(flow: Computed, op: p.Repeat) -> None:
    """The second time finds what the first has left, as any other does."""
    for _ in range(min(op.count, 2)):
        flow.run(op.body)


def _emit(flow: Computed, op: p.Emit) -> None:
    view = next((v for v in flow.program.views.values() if v.buffer == op.buffer), None)
    held = flow.region(op.buffer, 0, None, op.buffer) if view is None else flow.seen(view, op.buffer)
    flow.emitted[op.output] = complete(held, f"`{op.output}`")


def _greedy(flow: Computed, op: p.Argmax) -> None:
    logits = m.Read(op.logits, m.Type("f32"), flow.program.schedule.span)
    flow.greedy.append(complete(flow.read(logits), "`argmax`").term)


def _nothing(flow: Computed, op: p.Op) -> None:
    """What only moves: where it goes, the proofs of slots and the ops that read it say."""


# What an op makes of what it reads. Transfers of tapes, tiles and experts have their effect where they are waited for.
MAKES: dict[type, Callable[[Computed, Any], None]] = {
    p.Dot: _dot,
    p.Compute: _compute,
    p.Put: _put,
    p.CopyWait: _loaded,
    p.StoreStart: _save,
    p.Lookup: _lookup,
    p.RopeTables: _turns,
    p.Route: _route,
    p.ExpertDot: _expert_dot,
    p.Experts: _experts,
    p.Emit: _emit,
    p.Argmax: _greedy,
    p.Send: computed_collectives.send,
    p.Receive: computed_collectives.receive,
    p.Attend: attend,
    p.Barrier: _nothing,
    p.Start: _nothing,
    p.Wait: _nothing,
    p.CopyStart: _nothing,
    p.StoreWait: _nothing,
    p.StartTiles: _nothing,
    p.Fetch: _nothing,
    p.Repeat: _repeat,
    p.RowLoop: _row_loop,
    p.Keep: _keep,
    p.ArgmaxValue: _argmax_value,
    p.AttendBlock: attend_block,
}
