"""What moves between HBM and VMEM: tapes through rings, copies for layers, tiles of caches, experts, rows of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

from ...dsl.program import ir as p
from ...dsl.program.analysis.traffic import array_bytes, fetched, kept_after
from ...dsl.program.ir.walk import Placed
from ...dsl.program.layout.tiling import ROW_BYTES
from ...dsl.schedule.blocks import most
from ...dsl.targets.targets import BYTES
from . import costs
from .actions import Action, Await, ExpertsRef, Issue, SlotRef, Verb, Where, Work
from .state import State

# What walks over the ops inside of another.
type Walk = Callable[[tuple[Placed, ...], State], Iterator[Action]]


def start(op: p.Start, state: State) -> Iterator[Action]:
    name, transfers = op.ring, state.tapes[op.ring]
    slots = state.program.rings[name].slots
    for _ in range(op.count):
        at = state.started.get(name, 0)
        state.started[name] = at + 1
        if at < len(transfers):
            product, rows = transfers[at]
            yield state.run(costs.START, name, verb=Verb.START)
            where = Where(product.place, None, product.short, product)
            yield Issue(where, (name, at), rows * ROW_BYTES, SlotRef(name, at % slots))


def wait(op: p.Wait, state: State) -> Iterator[Action]:
    name, transfers = op.ring, state.tapes[op.ring]
    for _ in op.rows:
        at = state.waited.get(name, 0)
        state.waited[name] = at + 1
        yield Await(state.where(transfers[at][0]), (name, at), "tape")
    yield state.run(costs.WAIT * len(op.rows), name, verb=Verb.WAIT)


def copy_start(op: p.CopyStart, state: State) -> Iterator[Action]:
    held, (index, runs) = state.program.copies[op.copy], _meant(op, state)
    size = _size(held, state)
    array = state.program.arrays.get(held.name)
    if array is not None and array.kind == "state":
        size //= kept_after(state.program)
    if runs:
        yield state.run(costs.START, held.name, verb=Verb.LOAD)
        yield Issue(state.where(held.name), (Verb.LOAD, held.name, index), size, held.buffer)


def copy_wait(op: p.CopyWait, state: State) -> Iterator[Action]:
    held = state.program.copies[op.copy]
    yield Await(state.where(held.name), (Verb.LOAD, held.name, _index(held, state)), "copy")


def store_start(op: p.StoreStart, state: State) -> Iterator[Action]:
    held = state.program.copies[op.copy]
    index, size = _index(held, state), _size(held, state)
    yield state.run(costs.START, held.name, verb=Verb.SAVE)
    state.saves[held.name, index] = None
    yield Issue(state.where(held.name, Verb.SAVE), (Verb.SAVE, held.name, index), size, held.buffer)


def store_wait(op: p.StoreWait, state: State) -> Iterator[Action]:
    held, (index, runs) = state.program.copies[op.copy], _meant(op, state)
    own = [at for name, at in state.saves if name == held.name]
    for at in [at for at in own if op.all_ or (runs and at <= index - held.slots)]:
        del state.saves[held.name, at]
        yield Await(state.where(held.name, Verb.SAVED), (Verb.SAVE, held.name, at), "copy")


def _index(held: p.Copy, state: State) -> int:
    """This layer's entry of a copy."""
    return state.index.get(held.part or "", 0)


def _size(held: p.Copy, state: State) -> int:
    """Bytes of an entry."""
    array = state.program.arrays.get(held.name) or state.program.outputs[held.name]
    return prod(array.shape[1:]) * BYTES[array.dtype]


def _meant(op: p.CopyStart | p.StoreWait, state: State) -> tuple[int, bool]:
    """The entry that an op means, and whether a layer runs its part."""
    held = state.program.copies[op.copy]
    if state.program.is_step(held.part) or (held.part == state.scope and not op.ahead):
        return _index(held, state), True
    return _next(held, op.ahead, state)


def _next(copy: p.Copy, ahead: bool, state: State) -> tuple[int, bool]:
    """A copy's entry for the next layer, or for this one where its part comes later; whether that runs it."""
    layer = (-1 if state.layer is None else state.layer) + ahead
    table = state.phase.layer_parts
    if state.layer is None and ahead:
        layer = min(table)
    runs = copy.part in table.get(layer, ())
    index = sum(copy.part in parts for at, parts in table.items() if at < layer)
    return index, runs


def start_tiles(op: p.StartTiles, state: State) -> Iterator[Action]:
    ring = state.program.caches[op.ring]
    for i in range(min(ring.slots, _tiles(ring, state))):
        yield from _start_tile(ring, i, state)


def attend(op: p.Attend | p.AttendBlock, state: State) -> Iterator[Action]:
    ring = state.program.caches[op.ring]
    total, layer = _tiles(ring, state), state.index.get(ring.part, 0)
    yield state.run(costs.attend_row(state.rows), Work.ATTEND)
    for i in range(total):
        state.begin("tiles")
        for cache in ring.caches:
            yield Await(state.where(Work.CACHE), (cache, layer, i), "cache")
        yield state.run(costs.attend_tile(op, state.program, state.target), Work.ATTEND, "mxu")
        if i + ring.slots < total:
            yield from _start_tile(ring, i + ring.slots, state)
    state.loop = ""


def _tiles(ring: p.CacheRing, state: State) -> int:
    """On the core with most of the positions; tokens of one sequence attend to the same tiles."""
    program = state.program
    seen = state.position if ring.window is None else min(state.position, ring.window)
    return program.of.sequences * -(-most(seen, program.schedule.ways(ring.axes)) // ring.tile)


def _start_tile(ring: p.CacheRing, i: int, state: State) -> Iterator[Action]:
    layer = state.index.get(ring.part, 0)
    yield state.run(costs.START * len(ring.caches), ring.name, verb=Verb.START)
    for cache, buffer in zip(ring.caches, ring.buffers, strict=True):
        held = state.program.buffers[buffer]
        size = prod(held.shape[1:]) * BYTES[held.dtype]
        yield Issue(state.where(cache), (cache, layer, i), size, SlotRef(cache, i % ring.slots))


def route(op: p.Route, state: State) -> Iterator[Action]:
    yield state.run(costs.route(state.program, state.program.banks[op.bank]), Work.ROUTE)


def fetch(op: p.Fetch, state: State) -> Iterator[Action]:
    bank = state.program.banks[op.bank]
    if op.first == 0:
        # Whole experts, so that over all layers their number is what is expected.
        state.owed[bank.name] = state.owed.get(bank.name, 0.5) + fetched(state.program, bank)
        state.experts[bank.name] = int(state.owed[bank.name])
        state.owed[bank.name] -= state.experts[bank.name]
    for i in range(op.first, min(op.stop, state.experts[bank.name])):
        yield from _start_expert(bank, i, state)


def experts(op: p.Experts, state: State, walk: Walk) -> Iterator[Action]:
    program, bank, body = state.program, state.program.banks[op.bank], state.at.inside
    total, name = state.experts[bank.name], ExpertsRef(bank.part)
    for i in range(total):
        state.begin("experts")
        yield Await(state.where(name), (bank.name, state.layer, i), "expert")
        yield from walk(body, state)
        yield state.run(costs.expert_sum(program.buffers[op.result].shape), name)
        if i + bank.slots < total:
            yield from _start_expert(bank, i + bank.slots, state)
    state.loop = ""


def _start_expert(bank: p.ExpertPool, i: int, state: State) -> Iterator[Action]:
    name = ExpertsRef(bank.part)
    yield state.run(costs.START, name, verb=Verb.START)
    yield Issue(state.where(name), (bank.name, state.layer, i), bank.layout.nbytes, SlotRef(bank.name, i % bank.slots))


def commit(state: State) -> Iterator[Action]:
    """After the kernel: new states, and those that are kept after each token, take the place of the old ones."""
    states = [array for array in state.program.arrays.values() if array.kind == "state"]
    if states:
        where = state.where(Work.COMMIT)
        yield Issue(where, Work.COMMIT, 2 * sum(map(array_bytes, states)), "commit")
        yield Await(where, Work.COMMIT, "commit")


def look_up(op: p.Lookup, state: State) -> Iterator[Action]:
    array = state.program.arrays[op.table]
    size = prod(array.shape[1:]) * BYTES[array.dtype]
    for row in range(state.rows):
        yield Issue(state.where(op.table), (op.table, row), size, op.buffer)
    for row in range(state.rows):
        yield Await(state.where(op.table), (op.table, row), "row")
