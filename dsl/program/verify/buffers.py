"""Values: a buffer holds one thing, which is there before it is read."""

from __future__ import annotations

from collections.abc import Iterator

from ...model import ir as m
from ...model.facts import STEP
from .. import ir as p
from ..ir.walk import Placed, walk
from .paths import Automaton, Fault, Moment, Parts
from .reach import Touched

_PART = 4  # of a path: phase, loop over layers, place in the layer, alternative

# By place and span.
type Named = dict[tuple[str, object], tuple[p.BufferRef, ...]]


def values_machine(program: p.Program, touched: Touched) -> Automaton[frozenset[p.BufferRef]]:
    """The state is the values that have been computed; a part's are gone when its layer is over."""
    moved: set[p.BufferRef] = {copy.buffer for copy in program.copies.values()} | set(program.banks)
    moved |= {name for cache in program.caches.values() for name in cache.buffers}
    # Of what is written element by element, a reader knows which are there.
    moved |= {at.op.buffer for at in walk(program) if isinstance(at.op, p.Put | p.Keep)}
    of_parts = frozenset(b.name for b in program.buffers.values() if not program.is_step(program.home(b.place)))

    def step(state: frozenset[p.BufferRef], op: p.Op, at: Moment) -> frozenset[p.BufferRef]:
        found = touched[at.path]
        for name in (*found.reads, *found.updates):
            if name not in state and name not in moved:
                raise Fault("E227", f"`{name}` is read before it is computed", op, name)
        if isinstance(op, p.Dot) and op.run + 1 < len(program.products[op.product].tiling.runs):
            return state
        for name in found.writes:
            at.say(name, op, f"`{name}` is computed")
        return state.union(found.writes)

    def turn(state: frozenset[p.BufferRef], _: Parts) -> frozenset[p.BufferRef]:
        return state - of_parts

    return Automaton(frozenset(), step, turn)


def shared(program: p.Program, ops: tuple[Placed, ...], touched: Touched) -> Iterator[Fault]:
    """Buffers that hold more than one thing: which of them a reader finds would depend on the order."""
    holds: dict[p.BufferRef, dict[object, tuple[p.Op | None, str]]] = {}
    for copy in program.copies.values():
        holds.setdefault(copy.buffer, {})["copy", copy.name] = None, copy.part or STEP
    for cache in program.caches.values():
        for i, name in enumerate(cache.buffers):
            holds.setdefault(name, {})["tiles", cache.name, i] = None, cache.part
    for bank in program.banks.values():
        holds.setdefault(bank.name, {})["experts", bank.name] = None, bank.part
    names = _named(program)
    for at in ops:
        for i, name in enumerate(touched[at.path].writes):
            holds.setdefault(name, {}).setdefault(_thing(at, i, program, names), (at.op, at.place))
    for name, things in holds.items():
        if len(things) > 1:
            (_, place), (op, other) = list(things.values())[:2]
            fault = Fault("E227", f"`{name}` holds two things, of `{place}` and of `{other}`", op, name)
            fault.place = other
            yield fault


def _named(program: p.Program) -> Named:
    """What each statement sets, by its place and span."""
    found: Named = {}
    model = program.instance.model
    for place, body in program.shares.facts.bodies.items():
        if place not in program.places:
            continue
        step = program.phase_of(place).step
        for statement in body:
            if isinstance(statement, m.Assign):
                names = statement.names
                found[place, statement.span] = tuple(
                    p.ValueRef("" if place not in model.parts or n in step.types else place, n) for n in names
                )
            elif model.states[statement.state].kind == "cache":
                found[place, statement.span] = (p.EntryRef(p.ModelCacheRef(statement.state)),)
            else:
                found[place, statement.span] = (p.ModelBufferRef(statement.state),)
    for ring in program.caches.values():
        if ring.expanded is not None:
            (call,) = program.shares.facts.latent_attention(ring.part)
            found[ring.part, call.span] = tuple(map(p.EntryRef, ring.caches))
    return found


def _thing(at: Placed, number: int, program: p.Program, names: Named) -> object:
    """What an op puts into the buffer that it writes."""
    match op := at.op:
        case p.Compute() | p.Put():
            said = names.get((program.home(at.place), op.span))
            if isinstance(op, p.Compute) and _is_trace(program, op.outputs[number]):
                return "copy", op.outputs[number]
            if said is None or number >= len(said):
                return "made", *_where(at, program), number
            if isinstance(op, p.Compute) and program.home(at.place) != at.place:
                return "value", op.outputs[number]  # of a row, or of all rows
            return ("copy" if _is_copied(program, said[number]) else "value"), said[number]
        case p.RowLoop():
            return "value", op.carried[number][1]
        case p.Dot():
            return "product", op.product
        case p.Receive():
            return "exchange", op.exchange
        case p.Lookup():
            return "table", op.table
    return "made", *_where(at, program), number


def _where(at: Placed, program: p.Program) -> tuple[object, ...]:
    """What tells an op from others: in a part its path there, as a part may stand twice in a layer."""
    if at.place in program.phase_of(at.place).layers:
        return at.place, at.path[_PART:]
    return at.place, at.path


def _is_copied(program: p.Program, buffer: p.BufferRef) -> bool:
    return isinstance(buffer, p.ArrayRef) and buffer in program.copies


def _is_trace(program: p.Program, buffer: p.BufferRef) -> bool:
    """Whether a buffer is one that a trace leaves from."""
    return isinstance(buffer, p.TraceRef) and buffer in program.outputs
