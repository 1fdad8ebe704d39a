"""What ops touch that compute, talk to other cores or attend, and what expressions read."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...collectives.collective import Operation
from ...model import ir as m
from ...model import ops as registry
from ...model.expressions import children
from ...targets.lanes import LANES, padded
from .. import ir as p
from ..layout.lanes import turned
from ..layout.tiling import WIDTH
from . import lowered_ops
from .spec_access import Access, Extents, How, Where, Wrong, reads, writes
from .spec_transfers import tiles


def dot(op: p.Dot, place: str, program: p.Program) -> Iterator[Access]:
    made = program.products[op.product]
    run, rows, tiling = made.tiling.runs[op.run], program.rows_at(place), made.tiling
    blocks = run.count * run.blocks
    if made.piece:
        heads = sum(each.count * each.blocks for each in tiling.runs)
        yield reads(made.operand, (heads, rows, tiling.inputs), "f32")
        yield writes(made.result, (range(run.first, run.first + blocks), rows, tiling.outputs), "f32")
        return
    yield reads(made.operand, (rows, tiling.inputs), made.dtype)
    yield writes(made.result, (rows, range(run.first, run.first + blocks * run.columns)), "f32")


def compute(op: p.Compute, place: str, program: p.Program) -> Iterator[Access]:
    yield from expression(op.node, place, program)
    row = lowered_ops.table.get(op.node.op) if isinstance(op.node, m.Call) else None
    for name in op.outputs:
        own = (row is not None and row.heads_first) or name in program.copies or name not in program.buffers
        # A loop over rows writes its row of what all rows are kept of.
        rows = program.rows_at(place if own or program.buffers[name].place == place else program.home(place))
        yield writes(name, None if own else (rows, *program.buffers[name].shape[1:]))


def _elements(index: m.Static, guard: m.Static | None, place: str, program: p.Program) -> range:
    """The elements of a buffer that a part writes in its layers."""
    instance, layers = program.instance, program.layers_of(place)
    found = [
        instance.number(index, layer) for layer in layers or (None,) if guard is None or instance.value(guard, layer)
    ]
    if not found:
        return range(0)
    if min(found) < 0 or any(each % 1 for each in found):
        raise Wrong(f"`{place}` writes elements {min(found):g} .. {max(found):g}")
    return range(int(min(found)), int(max(found)) + 1)


def put(op: p.Put, place: str, program: p.Program) -> Iterator[Access]:
    yield from (each for each in expression(op.node, place, program) if each.name != op.buffer)
    state = program.instance.model.states[op.buffer.state]
    written, (count, *shape) = _elements(op.index, op.guard, place, program), program.shares.shape(state.type.shape)
    if written.stop > count:
        raise Wrong(f"`{place}` writes the elements {written.start} .. {written.stop} of {count} of `{op.buffer}`")
    yield writes(op.buffer, (count, program.rows_at(place), *shape), program.instance.dtype(state.type))


def send(op: p.Send, place: str, program: p.Program) -> Iterator[Access]:
    made = program.exchanges[op.exchange]
    rows, ways = program.rows_at(place), program.schedule.ways(made.axes)
    if made.kind.operation is Operation.SOFTMAX_MERGE:
        heads, width = program.buffers[_result(made)].shape[1:]
        yield reads(made.value, (rows, ways * heads, width + LANES), "f32")
    else:
        yield reads(made.value, (rows, range(made.first, made.first + made.width)), "f32")
    if made.beside is not None:
        yield reads(made.beside, (rows, LANES), "f32")


def receive(op: p.Receive, place: str, program: p.Program) -> Iterator[Access]:
    made = program.exchanges[op.exchange]
    yield from _RECEIVED[made.kind.operation](made, program.rows_at(place), program)


def _sum(made: p.Collective, rows: int, program: p.Program) -> Iterator[Access]:
    yield writes(_result(made), (rows, made.width), "f32")


def _columns(made: p.Collective, rows: int, program: p.Program) -> Iterator[Access]:
    for piece in made.pieces:
        yield writes(piece.result, (rows, piece.width), "f32")
    if not made.pieces:
        yield writes(_result(made), (rows, program.shares.scattered(made.width)), "f32")


def _gather(made: p.Collective, rows: int, program: p.Program) -> Iterator[Access]:
    ways = program.schedule.ways(made.axes)
    for piece in made.pieces:
        if piece.start < 0 or piece.start + piece.width > made.width:
            raise Wrong(f"a piece of `{made.name}` ends at {piece.start + piece.width} of {made.width} columns")
        held = program.buffers[piece.result]
        dtype = "f32" if len(held.shape) == 2 else None
        yield writes(piece.result, _gathered(held, piece.width, rows, ways), dtype)


def _merge(made: p.Collective, rows: int, program: p.Program) -> Iterator[Access]:
    ways = program.schedule.ways(made.axes)
    heads, width = program.buffers[made.value].shape[1:]
    if heads % ways or made.width != heads // ways * width:
        raise Wrong(f"`{made.name}` sends {made.width} columns of {heads} heads to {ways} cores")
    yield writes(_result(made), (rows, heads // ways, width - LANES), "f32")


# What arrives, by what a collective does; `argmax` is a part of `Argmax`.
_RECEIVED: dict[Operation, Callable[[p.Collective, int, p.Program], Iterator[Access]]] = {
    Operation.SUM: _sum,
    Operation.REDUCE_SCATTER: _columns,
    Operation.GATHER: _gather,
    Operation.SOFTMAX_MERGE: _merge,
}


def _result(made: p.Collective) -> p.BufferRef:
    if made.result is None:
        raise Wrong(f"`{made.name}` has no result")
    return made.result


def _gathered(held: p.Buffer, width: int, rows: int, ways: int) -> Extents:
    """Columns of all cores, of which the last one's may be padding; or heads of all."""
    if len(held.shape) > 2:
        return (rows, ways * (width // held.shape[-1]), held.shape[-1])
    # A buffer wider than what comes has columns that nobody gives it; how wide the value is, its meaning says.
    return (rows, min(held.shape[-1], ways * width))


def width_of(view: p.View, held: p.Buffer) -> int:
    """A view's columns; those of a number for each row are the rows."""
    return view.shape[-1] if view.shape else held.shape[-1]


def attend(op: p.Attend, place: str, program: p.Program) -> Iterator[Access]:
    """Queries and results of latent attention are of all cores' heads where positions are sharded."""
    ring, shares, rows = program.caches[op.ring], program.shares, program.rows_at(place)
    working, call = program.instance.working, op.call
    heads, width = shares.shape(call.args[0].type.shape)
    if len(op.queries) == 1:
        yield reads(op.queries[0], (rows, heads, padded(width)), working)
        yield writes(op.result, (rows, heads, padded(shares.length(call.type.shape[-1]))), "f32")
    else:
        heads *= program.schedule.ways(ring.axes)
        rank, common = (padded(shares.length(each.type.shape[-1])) for each in call.args[1:3])
        yield reads(op.queries[0], (rows, heads, rank), "f32")
        yield reads(op.queries[1], (rows, heads, common), working)
        yield writes(op.result, (rows, heads, rank + (LANES if ring.axes else 0)), "f32")
    for entry_, (_, buffer, _, slots, dtype) in zip(op.entries, tiles(ring, program), strict=True):
        yield reads(entry_, (range(program.copies[entry_].slots), rows, slots[1], slots[3]), dtype)
        yield reads(buffer, slots, dtype)


def turns(op: p.RopeTables, place: str, program: p.Program) -> Iterator[Access]:
    width = op.call.option("width")
    lanes = turned(op.channels, op.channels if width is None else int(program.instance.number(width)))
    rows = program.rows_at(place)
    yield from (writes(name, (rows, lanes), "f32") for name in (op.cos, op.sin))


def route(op: p.Route, place: str, program: p.Program) -> Iterator[Access]:
    bank, instance = program.banks[op.bank], program.instance
    experts, top = (instance.length(axis) for axis in op.call.type.shape)
    if bank.top != top:
        raise Wrong(f"`{bank.name}` has room for {bank.top} experts a row; {top} are chosen")
    scores = op.call.args[0]
    if not isinstance(scores, m.Read) or scores.ref != op.scores:
        raise Wrong(f"`{op.scores}` are no operand of the op's own `route`")
    rows = program.rows_at(place)
    yield reads(op.scores, (rows, experts), "f32")
    yield from expression(op.call.args[1], place, program)
    yield writes(op.weights, (rows, experts), "f32")


def expert_dot(op: p.ExpertDot, place: str, program: p.Program) -> Iterator[Access]:
    bank = program.banks[op.bank]
    tiling = bank.layout.products[op.product].tiling
    yield reads(bank.name, (range(bank.slots), bank.layout.rows, WIDTH), "int32")
    rows = program.rows_at(place)
    yield reads(op.operand, (rows, tiling.inputs), program.instance.working)
    yield writes(op.result, (rows, tiling.outputs), "f32")


def experts(op: p.Experts, place: str, program: p.Program) -> Iterator[Access]:
    bank = program.banks[op.bank]
    out = program.buffers.get(op.result)
    yield reads(op.value, None if out is None else out.shape, "f32")
    yield reads(bank.routes, None, "f32")
    yield writes(op.result, None, "f32")


def greedy(op: p.Argmax, place: str, program: p.Program) -> Iterator[Access]:
    phase = program.phase_of(place)
    axis = phase.step.types[op.logits.name].shape[0]
    share = program.shares.length(axis)
    cut = share != program.instance.length(axis)
    if op.share != share or (cut and op.exchange is None):
        raise Wrong(f"the ids are chosen among {op.share} logits of a core, which has {share}")
    made = None if op.exchange is None else program.exchanges[op.exchange]
    if made is not None and (made.kind.operation, made.value) != (Operation.ARGMAX, op.logits):
        raise Wrong(f"`{made.name}` is a {made.kind.name} of `{made.value}`; the ids are chosen by `{op.logits}`")
    yield reads(program.views[op.logits].buffer, (phase.rows, range(share)), "f32")


def expression(node: m.Node, place: str, program: p.Program) -> Iterator[Access]:
    """What an expression reads, and the states that it updates in place, each once."""
    found: dict[tuple[m.Ref, How], None] = {}
    pending: list[tuple[m.Node, frozenset[str]]] = [(node, frozenset())]
    while pending:
        each, bound = pending.pop()
        ref: m.Ref | None = None
        match each:
            case m.Let():
                pending += [(value, bound) for _, value in each.bindings]
                pending.append((each.body, bound.union(name for name, _ in each.bindings)))
                continue
            case m.Local() | m.Read():
                own = isinstance(each, m.Local) and each.name in bound
                ref = None if own else program.ref_of(each, place)
            case m.WeightRef():
                ref = program.weight_at(place, each.name)
            case m.StateRef() if (bank := p.ModelBufferRef(each.name)) in program.buffers:
                found[bank, How.READ] = None
            case m.Call():
                for state, changed in _states(each, program):
                    found[state, How.UPDATE if changed else How.READ] = None
                if each.op == "rope":
                    found |= {(turn, How.READ): None for turn in _turned(each, place, program)}
        if ref is not None and ref in program.views:
            found[program.views[ref].buffer, How.READ] = None
        pending += [(child, bound) for child in children(each)]
    for buffer, how in found:
        yield Access(how, Where.BUFFER, buffer)


def _turned(call: m.Call, place: str, program: p.Program) -> tuple[p.BufferRef, ...]:
    """Where the rows' turns lie."""
    channels = program.shares.length(call.args[0].type.shape[-1])
    found = program.turns.get(p.rope_key(call, channels, program.instance, program.phase_of(place).step.name))
    return () if found is None else (found.cos, found.sin)


def _states(call: m.Call, program: p.Program) -> list[tuple[p.StateRef, bool]]:
    """The buffers of states among a call's operands, and whether it changes them in place."""
    if not any(isinstance(arg, m.StateRef) for arg in call.args):
        return []
    op = registry.find(call.op)
    parameters = op.parameters if op is not None else ()
    updated = op.updates if op is not None else ()
    named = [
        (p.StateRef(arg.name), parameter in updated)
        for parameter, arg in zip(parameters, call.args, strict=False)
        if isinstance(arg, m.StateRef)
    ]
    return [(name, changed) for name, changed in named if name in program.buffers]
