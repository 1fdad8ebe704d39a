"""A Program's step as actions: loops unrolled, layer by layer, tile by tile, expert by expert."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from attrs import define, field

from ...dsl.model import ir as m
from ...dsl.model.expressions import walk
from ...dsl.program import ir as p
from ...dsl.program.reads import BYTES, ROW_BYTES
from ...dsl.program.work import collective
from ...dsl.report.chance import distinct, largest_group
from . import costs
from .actions import Action, Await, Collect, Issue, Post, Run, Where
from .figures import Machine
from .links import phases


@define
class _State:
    """Where the walk is, and what is under way; keys are numbers that count up."""

    program: p.Program
    machine: Machine
    position: int
    place: str = "step"
    layer: int | None = None
    tapes: dict[str, list[tuple[str, int]]] = field(factory=dict)
    started: dict[str, int] = field(factory=dict)
    waited: dict[str, int] = field(factory=dict)
    loads: dict[tuple[str, int], None] = field(factory=dict)
    index: dict[str, int] = field(factory=dict)
    owed: dict[str, float] = field(factory=dict)
    bundles: dict[int, float] = field(factory=dict)

    def where(self, what: str) -> Where:
        """The place of an action."""
        return Where(self.place, self.layer, what.removeprefix(f"{self.place}."))

    def run(self, bundles: float, what: str, unit: str = "vpu") -> Run:
        """So many bundles."""
        return Run(self.where(what), bundles / self.machine.clock.value, unit)


def unroll(program: p.Program, machine: Machine, position: int) -> Iterator[Action]:
    """Every action of a step, with `position` earlier tokens in each row's caches."""
    state = _State(program, machine, position)
    for ring in program.rings:
        state.tapes[ring] = [
            (name, rows) for name, _ in program.transfers(ring) for rows in program.products[name].tiling.transfers
        ]
    yield from _ops(program.body, state)


def _ops(ops: tuple[p.Op, ...], state: _State) -> Iterator[Action]:
    for op in ops:
        match op:
            case p.Layers():
                yield from _layers(op, state)
            case p.Repeat():
                for _ in range(op.count):
                    yield from _ops(op.body, state)
            case p.Start() | p.Wait():
                yield from _tape(op, state)
            case p.Load() | p.Loaded() | p.Save() | p.Saved():
                yield from _copy(op, state)
            case p.StartTiles() | p.Attend():
                yield from _cache(op, state)
            case p.Fetch() | p.Experts() | p.Route():
                yield from _experts(op, state)
            case p.Send() | p.Receive():
                yield from _exchange(op, state)
            case _:
                yield from _other(op, state)


def _layers(op: p.Layers, state: _State) -> Iterator[Action]:
    parts = state.program.layer_parts
    for layer in range(op.start, op.stop):
        state.layer = layer
        for choice in op.choices:
            for part, body in choice.bodies:
                if part in parts[layer] and _position(parts[layer], part, op) == choice.position:
                    state.place = part
                    yield state.run(costs.BRANCH, "choice")
                    yield from _ops(body, state)
                    state.index[part] = state.index.get(part, 0) + 1
    state.place, state.layer = "step", None


def _position(parts: tuple[str, ...], part: str, op: p.Layers) -> int:
    """Which choice runs a part: the only one that has it, or as many as ran before it."""
    having = [choice.position for choice in op.choices if part in {name for name, _ in choice.bodies}]
    return having[0] if len(having) == 1 else parts.index(part)


def _tape(op: p.Start | p.Wait, state: _State) -> Iterator[Action]:
    name, tape = op.ring, state.tapes[op.ring]
    slots = state.program.rings[name].slots
    if isinstance(op, p.Start):
        for _ in range(op.count):
            at = state.started.get(name, 0)
            state.started[name] = at + 1
            if at < len(tape):
                product, rows = tape[at]
                yield state.run(costs.START, f"start {name}")
                place, _, what = product.partition(".")
                yield Issue(Where(place, None, what), (name, at), rows * ROW_BYTES, f"{name} {at % slots}")
        return
    for _ in op.rows:
        at = state.waited.get(name, 0)
        state.waited[name] = at + 1
        yield Await(state.where(tape[at][0]), (name, at), "tape")
    yield state.run(costs.WAIT * len(op.rows), f"wait {name}")


def _copy(op: p.Load | p.Loaded | p.Save | p.Saved, state: _State) -> Iterator[Action]:
    program, copy = state.program, state.program.copies[op.copy]
    index = state.index.get(copy.part or "", 0)
    runs = copy.part is None or (copy.part == state.place and not getattr(op, "ahead", False))
    if isinstance(op, p.Load | p.Saved) and not runs:
        index, runs = _next(copy, op.ahead, state)
    array = program.arrays.get(copy.name) or program.outputs[copy.name]
    size = prod(array.shape[1:]) * BYTES[array.dtype]
    key: object
    match op:
        case p.Load() if runs:
            yield state.run(costs.START, f"load {copy.name}")
            yield Issue(state.where(copy.name), ("load", copy.name, index), size, copy.buffer)
        case p.Loaded():
            yield Await(state.where(copy.name), ("load", copy.name, index), "copy")
        case p.Save():
            yield state.run(costs.START, f"save {copy.name}")
            state.loads["save " + copy.name, index] = None
            yield Issue(state.where(f"save {copy.name}"), ("save", copy.name, index), size, copy.buffer)
        case p.Saved():
            for key in [k for k in state.loads if k[0] == "save " + copy.name and (
                    op.all_ or (runs and k[1] <= index - copy.slots))]:  # fmt: skip
                del state.loads[key]
                yield Await(state.where(f"saved {copy.name}"), ("save", copy.name, key[1]), "copy")


def _next(copy: p.Copy, ahead: bool, state: _State) -> tuple[int, bool]:
    """A copy's entry for the next layer, or for this one where its part comes later; whether that runs it."""
    layer = (-1 if state.layer is None else state.layer) + ahead
    if state.layer is None and ahead:
        layer = min(state.program.layer_parts)
    runs = copy.part in state.program.layer_parts.get(layer, ())
    index = sum(copy.part in parts for at, parts in state.program.layer_parts.items() if at < layer)
    return index, runs


def _cache(op: p.StartTiles | p.Attend, state: _State) -> Iterator[Action]:
    program, ring = state.program, state.program.caches[op.ring]
    total = program.rows * -(-state.position // ring.tile)
    sizes = [
        (cache, prod(program.buffers[b].shape[1:]) * BYTES[program.buffers[b].dtype])
        for cache, b in zip(ring.caches, ring.buffers, strict=True)
    ]
    layer = state.index.get(ring.part, 0)

    def start(i: int) -> Iterator[Action]:
        yield state.run(costs.START * len(sizes), f"start {ring.name}")
        for cache, size in sizes:
            yield Issue(state.where(cache), (cache, layer, i), size, f"{cache} {i % ring.slots}")

    if isinstance(op, p.StartTiles):
        for i in range(min(ring.slots, total)):
            yield from start(i)
        return
    yield state.run(costs.attend_row(program), "attend")
    for i in range(total):
        for cache, _ in sizes:
            yield Await(state.where("cache"), (cache, layer, i), "cache")
        yield state.run(costs.attend_tile(ring, program, state.machine), "attend", "mxu")
        if i + ring.slots < total:
            yield from start(i + ring.slots)


def _experts(op: p.Fetch | p.Experts | p.Route, state: _State) -> Iterator[Action]:
    program, bank = state.program, state.program.banks[op.bank]
    if isinstance(op, p.Route):
        yield state.run(costs.route(program, bank), "route")
        return
    size, layer, name = bank.layout.nbytes, state.layer, f"experts of {bank.part}"
    if isinstance(op, p.Fetch):
        # Whole experts, so that over all layers their number is what is expected.
        state.owed[bank.name] = state.owed.get(bank.name, 0.5) + expected_experts(program, bank)
        state.index[bank.name] = int(state.owed[bank.name])
        state.owed[bank.name] -= state.index[bank.name]
    total = state.index[bank.name]

    def start(i: int) -> Iterator[Action]:
        yield state.run(costs.START, f"start {name}")
        yield Issue(state.where(name), (bank.name, layer, i), size, f"{bank.name} {i % bank.slots}")

    if isinstance(op, p.Fetch):
        for i in range(min(bank.slots, total)):
            yield from start(i)
        return
    for i in range(total):
        yield Await(state.where(name), (bank.name, layer, i), "expert")
        yield from _ops(op.body, state)
        yield state.run(3 * costs.registers(program.buffers[op.result].shape) + 20, name)
        if i + bank.slots < total:
            yield from start(i + bank.slots)


def expected_experts(program: p.Program, bank: p.Bank) -> float:
    """How many distinct experts the core with most of them reads in a layer, were routing uniform."""
    experts = program.buffers[bank.routes].shape[-1]
    top = next(
        program.instance.number(static)
        for op in _all(program.body)
        if isinstance(op, p.Route) and op.bank == bank.name
        for name, static in op.call.options
        if name == "top"
    )
    whole = max(bank.count, experts)
    return largest_group(whole, max(1, whole // bank.count), round(distinct(whole, int(top), program.rows)))


def _all(ops: tuple[p.Op, ...]) -> Iterator[p.Op]:
    for op in ops:
        yield op
        if isinstance(op, p.Repeat | p.Experts):
            yield from _all(op.body)
        elif isinstance(op, p.Layers):
            for choice in op.choices:
                for _, body in choice.bodies:
                    yield from _all(body)


def _exchange(op: p.Send | p.Receive, state: _State) -> Iterator[Action]:
    program, exchange = state.program, state.program.exchanges[op.exchange]
    made, name = collective(program, exchange), exchange.name
    if isinstance(op, p.Send):
        yield state.run(costs.send(made), f"send {name}")
        yield Post(state.where(name), name, phases(program, exchange, state.machine))
        return
    yield Collect(state.where(name), name, costs.between(made) / state.machine.clock.value)


def _other(op: p.Op, state: _State) -> Iterator[Action]:
    program, machine = state.program, state.machine
    match op:
        case p.Dot():
            product = program.products[op.product]
            yield state.run(costs.dot(product, op.run, program.rows, machine), product.name, "mxu")
        case p.ExpertDot():
            bank = program.banks[op.bank]
            product_ = bank.layout.products[op.product]
            bundles = costs.expert_dot(product_, bank.layout.codec, program.rows, machine)
            yield state.run(bundles, f"experts of {bank.part}", "mxu")
        case p.Compute():
            yield state.run(_computed(op, state), op.outputs[0])
        case p.Put():
            yield state.run(_computed(op, state), op.buffer)
        case p.Turns():
            yield state.run(200, "turns")
        case p.Lookup():
            yield from _look_up(op, state)
        case p.Greedy():
            yield state.run(costs.greedy(program, op.logits), "argmax")
            if op.exchange is not None:
                exchange = program.exchanges[op.exchange]
                yield Post(state.where("ids"), "ids", phases(program, exchange, machine))
                yield Collect(state.where("ids"), "ids", 60 / machine.clock.value)
        case p.Emit():
            buffer = program.buffers[op.buffer]
            yield Issue(state.where(op.output), op.output, prod(buffer.shape) * BYTES[buffer.dtype], op.output)
            yield Await(state.where(op.output), op.output, "output")


def _computed(op: p.Compute | p.Put, state: _State) -> float:
    """Bundles, which differ by layer only where something depends on it."""
    if id(op) not in state.bundles:
        by_layer = any(isinstance(node, m.Slice) for node in walk(op.node))
        bundles = costs.compute(op, state.program, state.layer)
        if by_layer:
            return bundles
        state.bundles[id(op)] = bundles
    return state.bundles[id(op)]


def _look_up(op: p.Lookup, state: _State) -> Iterator[Action]:
    array = state.program.arrays[op.table]
    size = prod(array.shape[1:]) * BYTES[array.dtype]
    assert isinstance(op.index, m.Input)
    for row in range(state.program.rows):
        yield Issue(state.where(op.table), (op.table, row), size, op.buffer)
    for row in range(state.program.rows):
        yield Await(state.where(op.table), (op.table, row), "row")
