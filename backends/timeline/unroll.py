"""A Program's step as actions: loops unrolled, layer by layer, tile by tile, expert by expert."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

from ...dsl.model import ir as m
from ...dsl.model.expressions import walk
from ...dsl.program import ir as p
from ...dsl.program.ir.scratch import collective
from ...dsl.program.ir.walk import Placed
from ...dsl.program.ir.walk import phases as phase_ops
from ...dsl.targets.target import Target
from ...dsl.targets.targets import BYTES
from ..pallas.cycles.bundles import Bundles
from . import costs, moving
from .actions import Action, Await, Collect, ExpertsRef, Issue, Post, Verb, Work
from .counted import Counted, compared
from .links import rounds
from .state import State


def unroll(program: p.Program, target: Target, position: int, counts: Sequence[Counted] = ()) -> Iterator[Action]:
    """Every action of a step, with `position` earlier tokens in each row's caches.

    Places of `counts` take the bundles that were counted, spread over what they do as it is estimated by op.
    """
    yield from _all(State(program, target, position, factors={(x.scope, x.loop): x.factor for x in counts}))


def count(program: p.Program, target: Target, position: int, bundles: Bundles) -> tuple[Counted, ...]:
    """What was counted of each place, beside its estimate."""
    state = State(program, target, position)
    for _ in _all(state):
        pass
    return compared(program, bundles, state.spent, state.rounds)


def _all(state: State) -> Iterator[Action]:
    program = state.program
    for ring in program.rings:
        state.tapes[ring] = [
            (name, rows) for name, _ in program.transfers(ring) for rows in program.products[name].tiling.transfers
        ]
    for phase, ops in zip(program.phases, phase_ops(program), strict=True):
        state.phase, state.scope, state.layer = phase, phase.place, None
        yield from _ops(ops, state)
    yield from moving.commit(state)


def _ops(ops: tuple[Placed, ...], state: State) -> Iterator[Action]:
    for state.at in ops:
        yield from ACTIONS[type(state.at.op)](state.at.op, state)


def _repeat(op: p.Repeat, state: State) -> Iterator[Action]:
    body = state.at.inside
    for _ in range(op.count):
        yield from _ops(body, state)


def _row_loop(op: p.RowLoop, state: State) -> Iterator[Action]:
    body = state.at.inside
    for _ in range(op.start, op.stop):
        yield from _ops(body, state)


def _layers(op: p.LayerLoop, state: State) -> Iterator[Action]:
    switches, scope = state.at.inside, state.scope
    for state.layer in range(op.start, op.stop):
        yield from _ops(switches, state)
    state.scope, state.layer = scope, None


def _switch(op: p.LayerSwitch, state: State) -> Iterator[Action]:
    assert state.layer is not None
    parts, bodies = state.phase.layer_parts[state.layer], state.at.bodies
    for (part, _), body in zip(op.bodies, bodies, strict=True):
        if part in parts:
            state.scope = part
            yield state.run(costs.BRANCH, Work.CHOICE)
            state.index[part] = state.program.layers_of(part).index(state.layer)
            yield from _ops(body, state)
            state.index[part] += 1


def _send(op: p.Send, state: State) -> Iterator[Action]:
    program, exchange = state.program, state.program.exchanges[op.exchange]
    yield state.run(costs.send(collective(program, exchange)), exchange.name, verb=Verb.SEND)
    yield Post(state.where(exchange.name), exchange.name, rounds(program, exchange, state.target))


def _receive(op: p.Receive, state: State) -> Iterator[Action]:
    exchange = state.program.exchanges[op.exchange]
    made = collective(state.program, exchange)
    between = state.seconds(costs.between(made), len(made.rounds))
    yield Collect(state.where(exchange.name), exchange.name, between)


def _dot(op: p.Dot, state: State) -> Iterator[Action]:
    product = state.program.products[op.product]
    yield state.run(costs.dot(product, op.run, state.rows, state.target), product.name, "mxu")


def _expert_dot(op: p.ExpertDot, state: State) -> Iterator[Action]:
    bank = state.program.banks[op.bank]
    bundles = costs.chosen_dot(bank, op.product, state.program, state.target)
    yield state.run(bundles, ExpertsRef(bank.part), "mxu")


def _compute(op: p.Compute, state: State) -> Iterator[Action]:
    yield state.run(_computed(op, state), op.outputs[0])


def _put(op: p.Put | p.Keep, state: State) -> Iterator[Action]:
    yield state.run(_computed(op, state), op.buffer)


def _computed(op: p.Compute | p.Put | p.Keep, state: State) -> float:
    """Bundles, which differ by layer only where something depends on it."""
    path = state.at.path
    if path not in state.bundles:
        by_layer = any(isinstance(node, m.Slice) for node in walk(op.node))
        bundles = costs.compute(op, state.rows, state.program, state.layer)
        if by_layer:
            return bundles
        state.bundles[path] = bundles
    return state.bundles[path]


def _rope_tables(op: p.RopeTables, state: State) -> Iterator[Action]:
    yield state.run(costs.ROPE_TABLES, Work.ROPE_TABLES)


def _argmax(op: p.Argmax, state: State) -> Iterator[Action]:
    yield from _chosen(state.program.views[op.logits].buffer, op.exchange, state)


def _argmax_value(op: p.ArgmaxValue, state: State) -> Iterator[Action]:
    yield from _chosen(op.value, op.exchange, state)


def _chosen(buffer: p.BufferRef, name: p.CollectiveRef | None, state: State) -> Iterator[Action]:
    """Of each row's numbers the largest, and then of all cores'."""
    yield state.run(costs.greedy(state.program.buffers[buffer].shape), Work.ARGMAX)
    if name is not None:
        exchange = state.program.exchanges[name]
        yield Post(state.where(name), name, rounds(state.program, exchange, state.target))
        yield Collect(state.where(name), name, state.seconds(costs.ARGMAX_OF_CORES))


def _emit(op: p.Emit, state: State) -> Iterator[Action]:
    buffer = state.program.buffers[op.buffer]
    yield Issue(state.where(op.output), op.output, prod(buffer.shape) * BYTES[buffer.dtype], op.output)
    yield Await(state.where(op.output), op.output, "output")


def _barrier(op: p.Barrier, state: State) -> Iterator[Action]:
    """Nothing is charged for: cores enter a call together."""
    yield from ()


# What each op does, and how long that takes of a core: `costs` has the bundles, `links` the time of messages.
ACTIONS: dict[type, Callable[[Any, State], Iterator[Action]]] = {
    p.Barrier: _barrier,
    p.Start: moving.start,
    p.Wait: moving.wait,
    p.Dot: _dot,
    p.CopyStart: moving.copy_start,
    p.CopyWait: moving.copy_wait,
    p.StoreStart: moving.store_start,
    p.StoreWait: moving.store_wait,
    p.Lookup: moving.look_up,
    p.Compute: _compute,
    p.Send: _send,
    p.Receive: _receive,
    p.StartTiles: moving.start_tiles,
    p.Attend: moving.attend,
    p.AttendBlock: moving.attend,
    p.Emit: _emit,
    p.Argmax: _argmax,
    p.ArgmaxValue: _argmax_value,
    p.RopeTables: _rope_tables,
    p.Put: _put,
    p.Keep: _put,
    p.Route: moving.route,
    p.Fetch: moving.fetch,
    p.ExpertDot: _expert_dot,
    p.Experts: lambda op, state: moving.experts(op, state, _ops),
    p.Repeat: _repeat,
    p.RowLoop: _row_loop,
    p.LayerSwitch: _switch,
    p.LayerLoop: _layers,
}
