"""Values: a buffer holds one thing, which is there before it is read; and it has room for it."""

from __future__ import annotations

from collections.abc import Iterator

from ..model.facts import STEP
from . import ir as p
from .exchange import LANES
from .proof_paths import Fault, Machine, Moment, Parts
from .proof_touches import Touched

type Placed = tuple[p.Op, str]


def placed(ops: tuple[p.Op, ...], place: str = STEP) -> Iterator[Placed]:
    """All ops with their places, those of repetitions and layers too."""
    for op in ops:
        match op:
            case p.Repeat():
                yield from placed(op.body, place)
            case p.Layers():
                for choice in op.choices:
                    for name, body in choice.bodies:
                        yield from placed(body, name)
            case p.Experts():
                yield from placed(op.body, place)
                yield op, place
            case _:
                yield op, place


def values_machine(program: p.Program, touched: Touched) -> Machine[frozenset[str]]:
    """The state is the values that have been computed; a part's are gone when its layer is over."""
    moved = {copy.buffer for copy in program.copies.values()} | set(program.banks)
    moved |= {name for cache in program.caches.values() for name in cache.buffers}
    # Of what is written element by element, a reader knows which are there.
    moved |= {op.buffer for op, _ in placed(program.body) if isinstance(op, p.Put)}
    of_parts = frozenset(b.name for b in program.buffers.values() if b.place not in ("", STEP))

    def step(state: frozenset[str], op: p.Op, at: Moment) -> frozenset[str]:
        found = touched[id(op), at.place]
        for name in (*found.reads, *found.updates):
            if name not in state and name not in moved:
                raise Fault("E227", f"`{name}` is read before it is computed", op, name)
        if isinstance(op, p.Dot) and op.run + 1 < len(program.products[op.product].tiling.runs):
            return state
        for name in found.writes:
            at.say(name, op, f"`{name}` is computed")
        return state.union(found.writes)

    def turn(state: frozenset[str], _: Parts) -> frozenset[str]:
        return state - of_parts

    return Machine(frozenset(), step, turn)


def shared(program: p.Program, ops: list[Placed], touched: Touched) -> Iterator[Fault]:
    """Buffers that hold more than one thing: which of them a reader finds would depend on the order."""
    holds: dict[str, dict[object, tuple[p.Op | None, str]]] = {}
    for copy in program.copies.values():
        holds.setdefault(copy.buffer, {})["copy", copy.name] = None, copy.part or STEP
    for cache in program.caches.values():
        for i, name in enumerate(cache.buffers):
            holds.setdefault(name, {})["tiles", cache.name, i] = None, cache.part
    for bank in program.banks.values():
        holds.setdefault(bank.name, {})["experts", bank.name] = None, bank.part
    names = _named(program)
    for each, place in ops:
        for i, name in enumerate(touched[id(each), place].writes):
            holds.setdefault(name, {}).setdefault(_thing(each, i, place, program, names), (each, place))
    for name, things in holds.items():
        if len(things) > 1:
            (_, place), (op, other) = list(things.values())[:2]
            fault = Fault("E227", f"`{name}` holds two things, of `{place}` and of `{other}`", op, name)
            fault.place = other
            yield fault


def _named(program: p.Program) -> dict[tuple[str, object], tuple[str, ...]]:
    """What each statement sets, by its place and span."""
    carried = set(program.instance.model.steps[""].types)
    found: dict[tuple[str, object], tuple[str, ...]] = {}
    for place, body in program.shares.facts.bodies.items():
        for statement in body:
            names = statement.names if hasattr(statement, "names") else (f"entry {statement.state}",)
            own = place == STEP or not hasattr(statement, "names")
            found[place, statement.span] = tuple(n if own or n in carried else f"{place}.{n}" for n in names)
    for ring in program.caches.values():
        if ring.expanded is not None:
            (call,) = program.shares.facts.latent_attention(ring.part)
            found[ring.part, call.span] = tuple(f"entry {name}" for name in ring.caches)
    return found


def _thing(op: p.Op, number: int, place: str, program: p.Program,
           names: dict[tuple[str, object], tuple[str, ...]]) -> object:  # fmt: skip
    """What an op puts into the buffer that it writes."""
    match op:
        case p.Compute() | p.Put():
            said = names.get((place, op.span))
            if said is None or number >= len(said):
                return "made", id(op), number
            return ("copy" if said[number] in program.copies else "value"), said[number]
        case p.Dot():
            return "product", op.product
        case p.Receive():
            return "exchange", op.exchange
        case p.Lookup():
            return "table", op.table
    return "made", id(op), number


def rooms(program: p.Program) -> Iterator[Fault]:
    """Transfers and their slots are of one size; semaphores count the bytes of what was started."""
    for product in program.products.values():
        ring, most = program.rings[product.ring], max(product.tiling.transfers, default=0)
        if most > ring.rows:
            yield Fault("E223", f"a transfer of `{product.name}` has {most} rows, a slot of `{ring.name}` {ring.rows}",
                        None, product.name)  # fmt: skip
        for name, width in ((product.operand, product.tiling.inputs), (product.result, product.tiling.outputs)):
            if program.buffers[name].shape[-1] < width:
                yield Fault("E223", f"`{name}` has {program.buffers[name].shape[-1]} columns of {width}", None, name)
    for copy in program.copies.values():
        yield from _entries(program, copy)
    for cache in program.caches.values():
        for name, array in zip(cache.buffers, cache.caches, strict=True):
            rows, heads, _, width = program.arrays[array].shape[1:]
            wanted = (cache.slots, heads, cache.tile, width)
            held = program.buffers[name].shape
            # Consecutive tokens share one row.
            every = 1 if program.consecutive else program.rows
            if held[0] < cache.slots or held[1:] != wanted[1:] or rows != every:
                yield Fault("E223", f"`{name}` is {list(held)}, its tiles {list(wanted)}", None, name)
    for exchange in program.exchanges.values():
        if exchange.kind == "sum" and exchange.by != "scatter":
            for name in (exchange.value, exchange.result):
                if program.buffers[name].shape[-1] < exchange.width:
                    said = f"`{name}` has fewer columns than the {exchange.width} of `{exchange.name}`"
                    yield Fault("E223", said, None, exchange.name)
        elif exchange.kind == "merge":
            yield from _merged(program, exchange)


def _merged(program: p.Program, exchange: p.Exchange) -> Iterator[Fault]:
    """The heads of all cores fall into as many shares, each of which comes home."""
    rows, heads, columns = program.buffers[exchange.value].shape
    own, rest = divmod(heads, program.schedule.ways(exchange.axes))
    wanted, held = (rows, own, columns - LANES), program.buffers[exchange.result].shape
    if rest or held != wanted or exchange.width != own * columns:
        said = f"`{exchange.name}` sends {exchange.width} columns for {list(held)} of {[rows, heads, columns]}"
        yield Fault("E223", said, None, exchange.name)


def _entries(program: p.Program, copy: p.Copy) -> Iterator[Fault]:
    shape = program.buffers[copy.buffer].shape
    runs = program.times(copy.part)
    if shape[0] < copy.slots:
        yield Fault("E221", f"`{copy.name}` has {copy.slots} slots, its buffer {shape[0]}", None, copy.name)
    for held in (program.arrays.get(copy.array), program.outputs.get(copy.name)):
        if held is None:
            continue
        # Of consecutive tokens a slot begins with the state before the first of them.
        before = program.consecutive and held.kind == "state"
        if (held.shape[1] + before, *held.shape[2:]) != shape[1:] or held.dtype != program.buffers[copy.buffer].dtype:
            said = f"an entry of `{copy.name}` is {list(held.shape[1:])}, its slot {list(shape[1:])}"
            yield Fault("E223", said, None, copy.name)
        if held.shape[0] != runs:
            yield Fault("E223", f"`{copy.name}` has {held.shape[0]} entries for {runs} layers", None, copy.name)
