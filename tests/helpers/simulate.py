"""Small Programs run step by step in every order that their transfers allow: what the proof is compared with.

A Program becomes the events of one core, as the kernel would run them on its own layers: transfers, waits, reads and
writes of places. Transfers end at any time; every order is tried. A reader notes from whom the value that it finds is.
A Program does the same as another one if it never hangs, leaves nothing under way, and its readers always find what the
other's find. Places that no transfer connects are tried apart: what happens in one cannot be seen in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache

from attrs import define, field, frozen
from helpers.cores import meet

from mks.dsl.model import ir as m
from mks.dsl.model import ops as registry
from mks.dsl.model.expressions import walk
from mks.dsl.program import ir as p
from mks.dsl.program.ir.scratch import ExchangeSet, exchange_set

type Place = tuple[Hashable, ...]
type Seen = dict[Hashable, frozenset[Hashable]]


@frozen
class Transfer:
    """From a place or from HBM (a tag) to a place or to HBM; so many units are counted by a semaphore when it ends."""

    source: Place | None
    target: Place | None
    semaphore: Place
    units: int
    tag: Hashable


@frozen
class Await:
    """Until a semaphore has so many units, which are taken."""

    semaphore: Place
    units: int


@frozen
class Look:
    """`who` reads a place."""

    place: Place
    who: Hashable


@frozen
class Put:
    """A value comes to a place."""

    place: Place
    tag: Hashable


type Event = Transfer | Await | Look | Put


@frozen
class Outcome:
    """What readers found, and what is wrong whatever they found."""

    seen: dict[Hashable, frozenset[Hashable]] = field(eq=dict)
    wrong: frozenset[str]


def outcome(program: p.Program, tiles: int, cores: int = 2) -> Outcome:
    """Of a Program whose caches have so many tiles, on so many cores."""
    core = _Core(program, tiles)
    try:
        core.run(program.phase.body)
    except _Wrong as e:
        return Outcome({}, frozenset({str(e)}))
    seen: Seen = {}
    wrong: set[str] = set(core.wrong)
    for events in components(core.events):
        found, faults = explore(events)
        seen |= found
        wrong |= faults
    if program.exchanges:
        found, faults = meet(tuple(core.talk), cores)
        seen |= {("core", who): tags for who, tags in found.items()}
        wrong |= faults
    return Outcome(seen, frozenset(wrong))


def components(events: Sequence[Event]) -> list[tuple[Event, ...]]:
    """Events apart by the places and semaphores that transfers connect, each in the order of the core."""
    parent: dict[Place, Place] = {}

    def root(place: Place) -> Place:
        parent.setdefault(place, place)
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    def named(event: Event) -> list[Place]:
        match event:
            case Transfer():
                return [place for place in (event.source, event.target, event.semaphore) if place is not None]
            case Await():
                return [event.semaphore]
        return [event.place]

    for event in events:
        first, *others = named(event)
        for other in others:
            parent[root(other)] = root(first)
    apart: dict[Place, list[Event]] = {}
    for event in events:
        apart.setdefault(root(named(event)[0]), []).append(event)
    return [tuple(found) for found in apart.values()]


@cache
def explore(events: tuple[Event, ...]) -> tuple[Seen, frozenset[str]]:
    """Every order in which transfers can end between the core's own events, until one goes wrong."""
    seen: dict[Hashable, set[Hashable]] = {}
    wrong: set[str] = set()
    start: _State = (0, frozenset(), frozenset(), frozenset())
    known, open_ = {start}, [start]
    while open_ and not wrong and all(len(tags) == 1 for tags in seen.values()):
        state = open_.pop()
        at, _, counts, pending = state
        after = [_ended(state, i, events, seen) for i in pending if i >= 0]
        if at == len(events):
            if pending:
                wrong.add("a transfer is under way at the end")
            elif counts:
                wrong.add("a semaphore is not zero at the end")
            after = []
        else:
            then = _next(state, events[at], seen)
            if then is not None:
                after.append(then)
            elif not pending:
                wrong.add("a wait never ends")
        for each in after:
            if each not in known:
                known.add(each)
                open_.append(each)
    return {who: frozenset(tags) for who, tags in seen.items()}, frozenset(wrong)


# How many events are done, what places hold, what semaphores count, and which transfers are under way.
type _State = tuple[int, frozenset, frozenset, frozenset[int]]


def _ended(state: _State, number: int, events: tuple[Event, ...], seen: dict[Hashable, set[Hashable]]) -> _State:
    at, memory, counts, pending = state
    transfer, begun = events[number], -1 - number
    assert isinstance(transfer, Transfer)
    held, units = dict(memory), dict(counts)
    if transfer.units > 1 and begun not in pending:
        # Units are counted as they come, the first of them before the value is there.
        units[transfer.semaphore] = units.get(transfer.semaphore, 0) + transfer.units // 2
        return at, memory, _frozen(units), pending | {begun}
    tag = transfer.tag
    if transfer.source is not None:
        tag = held.get(transfer.source)
        seen.setdefault(transfer.tag, set()).add(tag)
    if transfer.target is not None:
        held[transfer.target] = tag
    units[transfer.semaphore] = units.get(transfer.semaphore, 0) + transfer.units - (transfer.units // 2)
    return at, _frozen(held), _frozen(units), pending - {number, begun}


def _next(state: _State, event: Event, seen: dict[Hashable, set[Hashable]]) -> _State | None:
    at, memory, counts, pending = state
    match event:
        case Transfer():
            return at + 1, memory, counts, pending | {at}
        case Await():
            units = dict(counts)
            if units.get(event.semaphore, 0) < event.units:
                return None
            units[event.semaphore] -= event.units
            return at + 1, memory, _frozen(units), pending
        case Look():
            seen.setdefault(event.who, set()).add(dict(memory).get(event.place))
            return at + 1, memory, counts, pending
    held = dict(memory)
    held[event.place] = event.tag
    return at + 1, _frozen(held), counts, pending


def _frozen(held: dict) -> frozenset:
    return frozenset(item for item in held.items() if item[1])


class _Wrong(Exception):
    """What no kernel could be made of."""


@define
class _Core:
    """Follows a Program on its layers, as the kernel does; `talk` are its barriers and collectives."""

    program: p.Program
    tiles: int
    events: list[Event] = field(factory=list)
    talk: list[tuple[str, ExchangeSet, str]] = field(factory=list)
    wrong: set[str] = field(factory=set)
    place: str = "step"
    layer: int = -1
    index: int = 0
    block: int = 0
    slot_: int = 0
    rings: dict[p.RingRef, list[int]] = field(factory=dict)
    arrived: list[Place] = field(factory=list)
    times: dict[Hashable, int] = field(factory=dict)
    open: dict[p.CollectiveRef, str] = field(factory=dict)

    def run(self, ops: Iterable[p.Op]) -> None:
        """Op after op."""
        for op in ops:
            _RUN[type(op)](self, op)

    def key(self, op: p.Op) -> Hashable:
        """This run of an op, whatever its buffers are called and wherever it stands in its body."""
        what = (self.layer, self.place, self.block, *_identity(op))
        self.times[what] = self.times.get(what, 0) + 1
        return (*what, self.times[what])

    def runs(self, part: str, ahead: bool) -> tuple[int, bool]:
        """The index of a part's run in this layer or the next, and whether there is one."""
        if self.place == part and not ahead:
            return self.index, True
        layers = list(self.program.phase.layer_parts.values())
        layer = self.layer + ahead
        if layer > len(layers):
            raise _Wrong("beyond the layer table")
        before = sum(part in parts for parts in layers[: max(layer, 0)])
        return before, 0 <= layer < len(layers) and part in layers[layer]

    def slot(self, name: p.BufferRef) -> Place:
        """Where a buffer is, that of a copy in the slot of this layer."""
        copy = self.program.copies.get(name)
        return self.at(name, 0 if copy is None else self.index % copy.slots)

    def at(self, buffer: p.BufferRef, slot: int) -> Place:
        """A slot of a buffer, if it has so many."""
        held = self.program.buffers[buffer]
        kept = {b for c in self.program.caches.values() for b in c.buffers} | set(self.program.banks)
        if (buffer in kept or buffer in {c.buffer for c in self.program.copies.values()}) and slot >= held.shape[0]:
            self.wrong.add("a slot beyond the buffer")
        return buffer, slot


def _identity(op: p.Op) -> tuple[Hashable, ...]:
    match op:
        case p.Compute() | p.Put():
            return "compute", id(op.node)
        case p.Dot():
            return "dot", op.product, op.run
        case p.Send() | p.Receive():
            return type(op).__name__, op.exchange
        case p.Lookup():
            return "lookup", op.table
        case p.Attend():
            return "attend", op.ring
        case p.Route() | p.Experts():
            return type(op).__name__, op.bank
        case p.Fetch():
            return "fetch", op.bank, op.first
        case p.ExpertDot():
            return "expert dot", op.bank, op.product
        case p.RopeTables():
            return "turns", op.channels
        case p.Argmax():
            return ("greedy",)
        case p.Emit():
            return "emit", op.output
    return (type(op).__name__, *(getattr(op, name) for name in ("ring", "copy") if hasattr(op, name)))


def _repeat(core: _Core, op: p.Repeat) -> None:
    for core.block in range(op.count):
        core.run(op.body)
    core.block = 0


def _layers(core: _Core, op: p.LayerLoop) -> None:
    table = core.program.phase.layer_parts
    done: dict[str, int] = {}
    for core.layer in range(op.stop - op.start):
        parts = table.get(op.start + core.layer, ())
        for choice in op.choices:
            for part, body in choice.bodies:
                if part in parts:
                    core.place, core.index = part, done.get(part, 0)
                    core.run(body)
        for part in parts:
            done[part] = done.get(part, 0) + 1
    core.place, core.layer, core.index = "step", len(table), 0


def _start(core: _Core, op: p.Start) -> None:
    program, counters = core.program, core.rings.setdefault(op.ring, [0, 0])
    tape = _tape(program, op.ring)
    slots = program.rings[op.ring].slots
    for _ in range(op.count):
        number = counters[1]
        counters[1] += 1
        if number >= len(tape) + slots:
            core.wrong.add("beyond the tape's table")
        if number < len(tape):
            if tape[number] > program.rings[op.ring].rows:
                core.wrong.add("a transfer beyond its slot")
            slot = ("ring", op.ring, number % slots)
            core.events.append(Transfer(None, slot, ("sem", *slot), tape[number], ("tape", op.ring, number)))


def _tape(program: p.Program, ring: p.RingRef) -> list[int]:
    return [rows for name, _ in program.transfers(ring) for rows in program.products[name].tiling.transfers]


def _wait(core: _Core, op: p.Wait) -> None:
    counters, slots = core.rings.setdefault(op.ring, [0, 0]), core.program.rings[op.ring].slots
    core.arrived = []
    for rows in op.rows:
        slot = ("ring", op.ring, counters[0] % slots)
        counters[0] += 1
        core.events.append(Await(("sem", *slot), rows))
        core.arrived.append(slot)


def _dot(core: _Core, op: p.Dot) -> None:
    product, who = core.program.products[op.product], core.key(op)
    for i, slot in enumerate(core.arrived):
        core.events.append(Look((slot[0], product.ring, *slot[2:]), (who, "tile", i)))
    if not core.arrived:
        core.wrong.add("a product of nothing")
    core.events.append(Look(core.slot(product.operand), (who, "operand")))
    core.events.append(Put((*core.slot(product.result), op.run, core.block), who))


def _load(core: _Core, op: p.CopyStart) -> None:
    copy = core.program.copies[op.copy]
    index, runs = (core.index, True) if copy.part is None else core.runs(copy.part, op.ahead)
    if runs:
        slot = index % copy.slots
        core.events.append(
            Transfer(None, core.at(copy.buffer, slot), ("loads", copy.name, slot), 1, ("load", copy.array, index))
        )


def _loaded(core: _Core, op: p.CopyWait) -> None:
    copy = core.program.copies[op.copy]
    core.events.append(Await(("loads", copy.name, core.index % copy.slots), 1))


def _save(core: _Core, op: p.StoreStart) -> None:
    copy = core.program.copies[op.copy]
    slot = core.index % copy.slots
    core.events.append(
        Transfer(core.at(copy.buffer, slot), None, ("saves", copy.name, slot), 1, ("save", copy.name, core.index))
    )


def _saved(core: _Core, op: p.StoreWait) -> None:
    copy = core.program.copies[op.copy]
    assert copy.part is not None
    if op.all_:
        count = core.program.outputs[copy.name].shape[0]
        slots = [last % copy.slots for last in range(max(0, count - copy.slots), count)]
    else:
        index, runs = core.runs(copy.part, op.ahead)
        slots = [index % copy.slots] if runs and index >= copy.slots else []
    core.events += [Await(("saves", copy.name, slot), 1) for slot in slots]


def _lookup(core: _Core, op: p.Lookup) -> None:
    core.events.append(Put(core.slot(op.buffer), core.key(op)))


def _compute(core: _Core, op: p.Compute) -> None:
    who = core.key(op)
    changed = []
    for i, (place, updated) in enumerate(_reads(core, op.node)):
        core.events += [Look(each, (who, i, n)) for n, each in enumerate(_pieces(core, place))]
        changed += [place] * updated
    core.events += [Put(place, who) for place in changed]
    for i, name in enumerate(op.outputs):
        core.events += [Put(each, (who, "output", i)) for each in _pieces(core, core.slot(name))]


def _reads(core: _Core, node: m.Node) -> list[tuple[Place, bool]]:
    """Where an expression finds its values, and whether it changes them in place."""
    found: list[tuple[Place, bool]] = []
    views = core.program.views
    inner = {name for each in walk(node) if isinstance(each, m.Let) for name, _ in each.bindings}
    for each in walk(node):
        if isinstance(each, m.Read) or (isinstance(each, m.Local) and each.name not in inner):
            ref = core.program.ref_of(each, core.place)
            assert ref is not None
            found.append((core.slot(views[ref].buffer), False))
        elif isinstance(each, m.WeightRef):
            found.append((core.slot(views[p.SmallWeightRef(each.name)].buffer), False))
        elif isinstance(each, m.Call):
            op = registry.find(each.op)
            for parameter, arg in zip(op.parameters if op else (), each.args, strict=False):
                if isinstance(arg, m.StateRef) and p.StateRef(arg.name) in core.program.buffers:
                    found.append((core.slot(p.StateRef(arg.name)), op is not None and parameter in op.updates))
            if each.op == "rope":
                channels = core.program.shares.length(each.args[0].type.shape[-1])
                turns = core.program.turns[p.rope_key(each, channels, core.program.instance)]
                found += [(core.slot(name), False) for name in (turns.cos, turns.sin)]
    return found


def _pieces(core: _Core, place: Place) -> list[Place]:
    """A product's result is made piece by piece; others are whole."""
    for product in core.program.products.values():
        if product.result == place[0]:
            return [(*place, n, i) for n, run in enumerate(product.tiling.runs) for i in range(run.count)]
    return [place]


def _read(core: _Core, name: p.BufferRef, who: Hashable) -> None:
    core.events += [Look(each, (who, i)) for i, each in enumerate(_pieces(core, core.slot(name)))]


def _send(core: _Core, op: p.Send) -> None:
    exchange = core.program.exchanges[op.exchange]
    who = core.key(op)
    _read(core, exchange.value, who)
    if exchange.beside:
        _read(core, exchange.beside, (who, "beside"))
    core.open[op.exchange] = f"{op.exchange} of layer {core.layer}"
    core.talk.append(("send", exchange_set(core.program, exchange), core.open[op.exchange]))


def _receive(core: _Core, op: p.Receive) -> None:
    exchange = core.program.exchanges[op.exchange]
    if op.exchange not in core.open:
        raise _Wrong("received before it is sent")
    for i, name in enumerate([piece.result for piece in exchange.pieces] or [exchange.result]):
        core.events.append(Put(core.slot(name), (core.key(op), i)))
    core.talk.append(("receive", exchange_set(core.program, exchange), core.open.pop(op.exchange)))


def _start_tiles(core: _Core, op: p.StartTiles) -> None:
    ring = core.program.caches[op.ring]
    for number in range(min(core.tiles, ring.slots)):
        _start_tile(core, ring, number, number)


def _start_tile(core: _Core, ring: p.CacheRing, number: int, slot: int) -> None:
    for i, buffer in enumerate(ring.buffers):
        core.events.append(
            Transfer(
                None,
                core.at(buffer, slot),
                ("tiles", ring.name, slot, i),
                1,
                ("tile", ring.caches[i], core.index, number),
            )
        )


def _attend(core: _Core, op: p.Attend) -> None:
    ring, who = core.program.caches[op.ring], core.key(op)
    for i, name in enumerate((*op.queries, *op.entries)):
        core.events.append(Look(core.slot(name), (who, "given", i)))
    for number in range(core.tiles):
        slot = number % ring.slots
        core.events += [Await(("tiles", ring.name, slot, i), 1) for i in range(len(ring.buffers))]
        core.events += [Look(core.at(b, slot), (who, "tile", number, i)) for i, b in enumerate(ring.buffers)]
        if number + ring.slots < core.tiles:
            _start_tile(core, ring, number + ring.slots, slot)
    core.events.append(Put(core.slot(op.result), who))


def _turns(core: _Core, op: p.RopeTables) -> None:
    who = core.key(op)
    core.events += [Put(core.slot(op.cos), (who, "cos")), Put(core.slot(op.sin), (who, "sin"))]


def _put(core: _Core, op: p.Put) -> None:
    who = core.key(op)
    core.events += [Look(place, (who, i)) for i, (place, _) in enumerate(_reads(core, op.node))]
    core.events.append(Put((op.buffer, "element", core.layer), who))


def _route(core: _Core, op: p.Route) -> None:
    chosen = (core.layer, core.place, *_identity(op))  # the same experts, however often they are chosen
    core.events += [
        Look(core.slot(op.scores), (core.key(op), "scores")),
        Put(core.slot(op.weights), chosen),
        Put(("list", op.bank), chosen),
    ]


def _fetch(core: _Core, op: p.Fetch) -> None:
    bank = core.program.banks[op.bank]
    core.events.append(Look(("list", op.bank), (core.key(op), "list")))
    for number in range(op.first, min(core.tiles, bank.most, op.stop)):
        _fetch_one(core, bank, number, number)


def _fetch_one(core: _Core, bank: p.ExpertPool, number: int, slot: int) -> None:
    core.events.append(
        Transfer(
            None, core.at(bank.name, slot), ("experts", bank.name, slot), 1, ("expert", bank.array, core.index, number)
        )
    )


def _experts(core: _Core, op: p.Experts) -> None:
    bank, who, total = core.program.banks[op.bank], core.key(op), min(core.tiles, core.program.banks[op.bank].most)
    core.events.append(Look(("list", op.bank), (who, "list")))
    for number in range(total):
        core.slot_ = number % bank.slots
        core.events.append(Await(("experts", bank.name, core.slot_), 1))
        core.run(op.body)
        core.events += [
            Look(core.slot(bank.routes), (who, "weights", number)),
            Look(core.slot(op.value), (who, number)),
        ]
        if number + bank.slots < total:
            _fetch_one(core, bank, number + bank.slots, core.slot_)
    core.events.append(Put(core.slot(op.result), who))


def _expert_dot(core: _Core, op: p.ExpertDot) -> None:
    who = core.key(op)
    core.events += [
        Look(core.at(op.bank, core.slot_), (who, "expert")),
        Look(core.slot(op.operand), (who, "operand")),
        Put(core.slot(op.result), who),
    ]


def _greedy(core: _Core, op: p.Argmax) -> None:
    _read(core, core.program.views[op.logits].buffer, core.key(op))
    if op.exchange is not None:
        key = exchange_set(core.program, core.program.exchanges[op.exchange])
        core.talk += [("send", key, op.exchange), ("receive", key, op.exchange)]


def _emit(core: _Core, op: p.Emit) -> None:
    _read(core, op.buffer, core.key(op))


_RUN: dict[type, Callable] = {
    p.Barrier: lambda core, op: core.talk.append(("barrier", "", "")),
    p.Start: _start,
    p.Wait: _wait,
    p.Dot: _dot,
    p.CopyStart: _load,
    p.CopyWait: _loaded,
    p.StoreStart: _save,
    p.StoreWait: _saved,
    p.Lookup: _lookup,
    p.Compute: _compute,
    p.Send: _send,
    p.Receive: _receive,
    p.StartTiles: _start_tiles,
    p.Attend: _attend,
    p.Emit: _emit,
    p.Argmax: _greedy,
    p.RopeTables: _turns,
    p.Put: _put,
    p.Route: _route,
    p.Fetch: _fetch,
    p.Experts: _experts,
    p.ExpertDot: _expert_dot,
    p.Repeat: _repeat,
    p.LayerLoop: _layers,
}
