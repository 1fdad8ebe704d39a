"""What moves between HBM and VMEM: tapes through rings, copies for layers, tiles of caches, experts, rows of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

from ...dsl.model import ir as m
from ...dsl.program import ir as p
from ...dsl.program.analysis.traffic import array_bytes, fetched, kept_after
from ...dsl.program.layout.tiling import ROW_BYTES
from ...dsl.schedule.blocks import most
from ...dsl.targets.targets import BYTES
from . import costs
from .actions import Action, Await, Issue, Where
from .state import State

# What walks over the ops inside of another.
type Walk = Callable[[tuple[p.Op, ...], State], Iterator[Action]]


def tape(op: p.Start | p.Wait, state: State) -> Iterator[Action]:
    name, transfers = op.ring, state.tapes[op.ring]
    slots = state.program.rings[name].slots
    if isinstance(op, p.Start):
        for _ in range(op.count):
            at = state.started.get(name, 0)
            state.started[name] = at + 1
            if at < len(transfers):
                product, rows = transfers[at]
                yield state.run(costs.START, f"start {name}")
                scope, _, what = product.partition(".")
                yield Issue(Where(scope, None, what), (name, at), rows * ROW_BYTES, f"{name} {at % slots}")
        return
    for _ in op.rows:
        at = state.waited.get(name, 0)
        state.waited[name] = at + 1
        yield Await(state.where(transfers[at][0]), (name, at), "tape")
    yield state.run(costs.WAIT * len(op.rows), f"wait {name}")


def copy(op: p.CopyStart | p.CopyWait | p.StoreStart | p.StoreWait, state: State) -> Iterator[Action]:
    program, copied = state.program, state.program.copies[op.copy]
    index = state.index.get(copied.part or "", 0)
    runs = copied.part is None or (copied.part == state.scope and not getattr(op, "ahead", False))
    if isinstance(op, p.CopyStart | p.StoreWait) and not runs:
        index, runs = _next(copied, op.ahead, state)
    array = program.arrays.get(copied.name) or program.outputs[copied.name]
    size = prod(array.shape[1:]) * BYTES[array.dtype]
    if isinstance(op, p.CopyStart) and array.kind == "state":
        size //= kept_after(program)
    key: object
    match op:
        case p.CopyStart() if runs:
            yield state.run(costs.START, f"load {copied.name}")
            yield Issue(state.where(copied.name), ("load", copied.name, index), size, copied.buffer)
        case p.CopyWait():
            yield Await(state.where(copied.name), ("load", copied.name, index), "copy")
        case p.StoreStart():
            yield state.run(costs.START, f"save {copied.name}")
            state.saves["save " + copied.name, index] = None
            yield Issue(state.where(f"save {copied.name}"), ("save", copied.name, index), size, copied.buffer)
        case p.StoreWait():
            for key in [k for k in state.saves if k[0] == "save " + copied.name and (
                    op.all_ or (runs and k[1] <= index - copied.slots))]:  # fmt: skip
                del state.saves[key]
                yield Await(state.where(f"saved {copied.name}"), ("save", copied.name, key[1]), "copy")


def _next(copy: p.Copy, ahead: bool, state: State) -> tuple[int, bool]:
    """A copy's entry for the next layer, or for this one where its part comes later; whether that runs it."""
    layer = (-1 if state.layer is None else state.layer) + ahead
    if state.layer is None and ahead:
        layer = min(state.program.layer_parts)
    runs = copy.part in state.program.layer_parts.get(layer, ())
    index = sum(copy.part in parts for at, parts in state.program.layer_parts.items() if at < layer)
    return index, runs


def tiles(op: p.StartTiles | p.Attend, state: State) -> Iterator[Action]:
    program, ring = state.program, state.program.caches[op.ring]
    # On the core with most of the positions; tokens of one sequence attend to the same tiles.
    total = program.of.sequences * -(-most(state.position, program.schedule.ways(ring.axes)) // ring.tile)
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
        state.begin("tiles")
        for cache, _ in sizes:
            yield Await(state.where("cache"), (cache, layer, i), "cache")
        yield state.run(costs.attend_tile(op, program, state.machine), "attend", "mxu")
        if i + ring.slots < total:
            yield from start(i + ring.slots)
    state.loop = ""


def experts(op: p.Fetch | p.Experts | p.Route, state: State, body: Walk) -> Iterator[Action]:
    program, bank = state.program, state.program.banks[op.bank]
    if isinstance(op, p.Route):
        yield state.run(costs.route(program, bank), "route")
        return
    size, layer, name = bank.layout.nbytes, state.layer, f"experts of {bank.part}"
    if isinstance(op, p.Fetch) and op.first == 0:
        # Whole experts, so that over all layers their number is what is expected.
        state.owed[bank.name] = state.owed.get(bank.name, 0.5) + fetched(program, bank)
        state.index[bank.name] = int(state.owed[bank.name])
        state.owed[bank.name] -= state.index[bank.name]
    total = state.index[bank.name]

    def start(i: int) -> Iterator[Action]:
        yield state.run(costs.START, f"start {name}")
        yield Issue(state.where(name), (bank.name, layer, i), size, f"{bank.name} {i % bank.slots}")

    if isinstance(op, p.Fetch):
        for i in range(op.first, min(op.stop, total)):
            yield from start(i)
        return
    for i in range(total):
        state.begin("experts")
        yield Await(state.where(name), (bank.name, layer, i), "expert")
        yield from body(op.body, state)
        yield state.run(costs.expert_sum(program.buffers[op.result].shape), name)
        if i + bank.slots < total:
            yield from start(i + bank.slots)
    state.loop = ""


def commit(state: State) -> Iterator[Action]:
    """After the kernel: new states, and those that are kept after each token, take the place of the old ones."""
    states = [array for array in state.program.arrays.values() if array.kind == "state"]
    if states:
        where = state.where("commit")
        yield Issue(where, "commit", 2 * sum(map(array_bytes, states)), "commit")
        yield Await(where, "commit", "commit")


def look_up(op: p.Lookup, state: State) -> Iterator[Action]:
    array = state.program.arrays[op.table]
    size = prod(array.shape[1:]) * BYTES[array.dtype]
    assert isinstance(op.index, m.Input)
    for row in range(state.program.rows):
        yield Issue(state.where(op.table), (op.table, row), size, op.buffer)
    for row in range(state.program.rows):
        yield Await(state.where(op.table), (op.table, row), "row")
