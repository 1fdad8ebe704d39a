"""A Program's step as actions: loops unrolled, layer by layer, tile by tile, expert by expert."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from ...dsl.model import ir as m
from ...dsl.model.expressions import walk
from ...dsl.program import ir as p
from ...dsl.program.ir.scratch import collective
from ...dsl.targets.targets import BYTES
from ..pallas.cycles.bundles import Bundles
from . import costs, moving
from .actions import Action, Await, Collect, Issue, Post
from .counted import Counted, compared
from .links import phases
from .machine_model import Machine
from .state import State


def unroll(program: p.Program, machine: Machine, position: int, counts: Sequence[Counted] = ()) -> Iterator[Action]:
    """Every action of a step, with `position` earlier tokens in each row's caches.

    Places of `counts` take the bundles that were counted, spread over what they do as it is estimated by op.
    """
    yield from _all(State(program, machine, position, factors={(x.scope, x.loop): x.factor for x in counts}))


def count(program: p.Program, machine: Machine, position: int, bundles: Bundles) -> tuple[Counted, ...]:
    """What was counted of each scope, beside its estimate."""
    state = State(program, machine, position)
    for _ in _all(state):
        pass
    return compared(program, bundles, state.spent, state.rounds)


def _all(state: State) -> Iterator[Action]:
    program = state.program
    for ring in program.rings:
        state.tapes[ring] = [
            (name, rows) for name, _ in program.transfers(ring) for rows in program.products[name].tiling.transfers
        ]
    yield from _ops(program.body, state)
    yield from moving.commit(state)


def _ops(ops: tuple[p.Op, ...], state: State) -> Iterator[Action]:
    for op in ops:
        match op:
            case p.LayerLoop():
                yield from _layers(op, state)
            case p.Repeat():
                for _ in range(op.count):
                    yield from _ops(op.body, state)
            case p.Start() | p.Wait():
                yield from moving.tape(op, state)
            case p.CopyStart() | p.CopyWait() | p.StoreStart() | p.StoreWait():
                yield from moving.copy(op, state)
            case p.StartTiles() | p.Attend():
                yield from moving.tiles(op, state)
            case p.Fetch() | p.Experts() | p.Route():
                yield from moving.experts(op, state, _ops)
            case p.Send() | p.Receive():
                yield from _exchange(op, state)
            case _:
                yield from _other(op, state)


def _layers(op: p.LayerLoop, state: State) -> Iterator[Action]:
    parts = state.program.layer_parts
    for layer in range(op.start, op.stop):
        state.layer = layer
        for choice in op.choices:
            for part, body in choice.bodies:
                if part in parts[layer] and _position(parts[layer], part, op) == choice.position:
                    state.scope = part
                    yield state.run(costs.BRANCH, "choice")
                    yield from _ops(body, state)
                    state.index[part] = state.index.get(part, 0) + 1
    state.scope, state.layer = "step", None


def _position(parts: tuple[str, ...], part: str, op: p.LayerLoop) -> int:
    """Which choice runs a part: the only one that has it, or as many as ran before it."""
    having = [choice.position for choice in op.choices if part in {name for name, _ in choice.bodies}]
    return having[0] if len(having) == 1 else parts.index(part)


def _exchange(op: p.Send | p.Receive, state: State) -> Iterator[Action]:
    program, exchange = state.program, state.program.exchanges[op.exchange]
    plan, name = collective(program, exchange), exchange.name
    if isinstance(op, p.Send):
        yield state.run(costs.send(plan), f"send {name}")
        yield Post(state.where(name), name, phases(program, exchange, state.machine))
        return
    between = state.seconds(costs.between(plan), len(plan.phases))
    yield Collect(state.where(name), name, between)


def _other(op: p.Op, state: State) -> Iterator[Action]:
    program, machine = state.program, state.machine
    match op:
        case p.Dot():
            product = program.products[op.product]
            yield state.run(costs.dot(product, op.run, program.rows, machine), product.name, "mxu")
        case p.ExpertDot():
            bank = program.banks[op.bank]
            bundles = costs.chosen_dot(bank, op.product, program, machine)
            yield state.run(bundles, f"experts of {bank.part}", "mxu")
        case p.Compute():
            yield state.run(_computed(op, state), op.outputs[0])
        case p.Put():
            yield state.run(_computed(op, state), op.buffer)
        case p.RopeTables():
            yield state.run(200, "turns")
        case p.Lookup():
            yield from moving.look_up(op, state)
        case p.Argmax():
            yield state.run(costs.greedy(program, op.logits), "argmax")
            if op.exchange is not None:
                exchange = program.exchanges[op.exchange]
                yield Post(state.where("ids"), "ids", phases(program, exchange, machine))
                yield Collect(state.where("ids"), "ids", state.seconds(60))
        case p.Emit():
            buffer = program.buffers[op.buffer]
            yield Issue(state.where(op.output), op.output, prod(buffer.shape) * BYTES[buffer.dtype], op.output)
            yield Await(state.where(op.output), op.output, "output")


def _computed(op: p.Compute | p.Put, state: State) -> float:
    """Bundles, which differ by layer only where something depends on it."""
    if id(op) not in state.bundles:
        by_layer = any(isinstance(node, m.Slice) for node in walk(op.node))
        bundles = costs.compute(op, state.program, state.layer)
        if by_layer:
            return bundles
        state.bundles[id(op)] = bundles
    return state.bundles[id(op)]
