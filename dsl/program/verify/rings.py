"""Rings: what is waited for is what the tape brings next, in a slot that nothing writes until it was multiplied."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from ...records import frozen
from .. import ir as p
from ..ir.walk import Placed
from .paths import Automaton, Fault, Items, Loop, Moment, Track, track

type Group = tuple[p.ProductRef, int, int, tuple[int, ...]]  # product, run, iteration, rows


@frozen
class Ring:
    """Transfers waited for and started, counted from some transfer; the tape's last one, if it is known, and those
    that were waited for together last."""

    waited: int = 0
    started: int = 0
    last: int | None = None
    arrived: tuple[int, ...] | None = None


def ring_track(program: p.Program, ring: p.RingRef) -> tuple[Track, ...]:
    """The ops of a ring; waits for others too, as products take what was waited for last."""

    def own(at: Placed) -> bool:
        match op := at.op:
            case p.Start():
                return op.ring == ring
            case p.Wait():
                return True
            case p.Dot():
                return program.products[op.product].ring == ring
        return False

    return track(program, own)


def ring_machine(program: p.Program, ring: p.RingRef, transfers: int | None) -> Automaton[Ring]:
    """`transfers` are those of the whole tape; without them they are known once the layers are over."""
    slots = program.rings[ring].slots
    rest = sum(len(rows) for _, _, _, rows in expected(program, ring, program.phases[-1].place, early=False))

    def start(state: Ring, op: p.Start, at: Moment) -> Ring:
        for number in range(state.started, state.started + op.count):
            slot = number % slots
            if state.last is not None and number >= state.last:
                if number >= state.last + slots:
                    raise Fault("E221", f"`{ring}` starts beyond the end of its tape", op, slot)
                continue
            if number - slots >= state.waited:
                raise Fault("E221", f"a transfer into slot {slot} of `{ring}` starts while another fills it", op, slot)
            at.say(slot, op, f"a transfer into slot {slot} of `{ring}` starts", begins=True)
        return Ring(state.waited, state.started + op.count, state.last, state.arrived)

    def wait(state: Ring, op: p.Wait, at: Moment) -> Ring:
        if op.ring != ring:
            return _read(state)
        coming = state.started if state.last is None else min(state.started, state.last)
        numbers = tuple(range(state.waited, state.waited + len(op.rows)))
        for number in numbers:
            if number >= coming:
                raise Fault(
                    "E224",
                    f"`{ring}` waits for a transfer into slot {number % slots} that never starts",
                    op,
                    number % slots,
                )
            at.say(number % slots, op, f"what came into slot {number % slots} of `{ring}` is waited for")
        return Ring(state.waited + len(numbers), state.started, state.last, numbers)

    def dot(state: Ring, op: p.Dot, at: Moment) -> Ring:
        if state.arrived is None:
            raise Fault("E220", f"`{op.product}` reads slots of `{ring}` without waiting for them", op)
        coming = state.started if state.last is None else min(state.started, state.last)
        for number in state.arrived:
            if number + slots < coming:
                raise Fault(
                    "E221",
                    f"`{op.product}` reads slot {number % slots} of `{ring}` after the next transfer "
                    "into it has started",
                    op,
                    number % slots,
                )
            at.say(number % slots, op, f"`{op.product}` reads slot {number % slots} of `{ring}`")
        return state

    def step(state: Ring, op: p.Op, at: Moment) -> Ring:
        match op:
            case p.Start():
                return start(state, op, at)
            case p.Wait():
                return wait(state, op, at)
            case p.Dot():
                return dot(state, op, at)
        return state

    def turn(state: Ring, _: tuple[str, ...]) -> Ring:
        """Where the end is unknown all numbers are alike: what counts is how far starts are ahead of waits."""
        return Ring(0, state.started - state.waited) if state.last is None else state

    def end(state: Ring) -> Ring:
        return evolve(state, last=state.waited + rest) if state.last is None else state

    def finish(state: Ring) -> None:
        if state.last is not None and state.waited < min(state.started, state.last):
            raise Fault(
                "E222",
                f"a transfer into slot {state.waited % slots} of `{ring}` is never waited for",
                None,
                state.waited % slots,
            )

    return Automaton(Ring(last=transfers), step, turn, _read, end, finish)


def _read(state: Ring) -> Ring:
    """What was waited for is not multiplied any more."""
    return Ring(state.waited, state.started, state.last)


def expected(program: p.Program, ring: p.RingRef, place: str, *, early: bool | None = None) -> Iterator[Group]:
    """What a place takes from a ring's tape, in the order of the tape; of a step, what it does before its layers."""
    before = program.phase_of(place).early
    for name in program.taken(ring, place):
        if early is None or (name in before) == early:
            for number, run in enumerate(program.products[name].tiling.runs):
                for turn in range(run.count):
                    yield name, number, turn, run.rows


def tape_faults(program: p.Program, ring: p.RingRef, ops: tuple[Track, ...]) -> Iterator[Fault]:
    """Where a place's waits and products are not those of the tape, which is the same in each layer that runs it."""
    for each in ops:
        for place, items in each.parts.items():
            yield from _place(program, ring, place, items, list(expected(program, ring, place)))
        for early, items in ((True, each.before), (False, each.after)):
            wanted = list(expected(program, ring, each.place, early=early))
            yield from _place(program, ring, each.place, items, wanted)


def _place(program: p.Program, ring: p.RingRef, place: str, items: Items, wanted: list[Group]) -> Iterator[Fault]:
    at, last, taken = -1, None, True
    for op, block in _flat(items):
        if isinstance(op, p.Wait) and op.ring == ring:
            if not taken:
                yield _at(_unread(wanted[at], ring, last), place)
                return
            at, last, taken = at + 1, op, False
            if at == len(wanted):
                yield _at(Fault("E224", f"`{place}` waits for more than the tape of `{ring}` has", op), place)
                return
            if op.rows != wanted[at][3]:
                yield _at(_bytes(op, wanted[at], ring), place)
                return
        elif isinstance(op, p.Dot):
            fault = _taken(op, block, wanted, at, taken, program)
            if fault is not None:
                yield _at(fault, place)
                return
            taken = True
    if not taken:
        yield _at(_unread(wanted[at], ring, last), place)
    elif at + 1 < len(wanted):
        name = wanted[at + 1][0]
        yield _at(Fault("E222", f"transfers of `{name}` through `{ring}` are never waited for", last), place)


def _taken(op: p.Dot, block: int, wanted: list[Group], at: int, taken: bool, program: p.Program) -> Fault | None:
    if taken:
        return Fault("E220", f"`{op.product}` multiplies what it has not waited for", op)
    name, run, turn, _ = wanted[at]
    several = program.products[name].tiling.runs[run].count > 1
    if (op.product, op.run, block if several else 0) != (name, run, turn):
        return Fault(
            "E223", f"`{op.product}`, cut {op.run + 1}, multiplies what belongs to `{name}`, cut {run + 1}", op
        )
    return None


def _bytes(op: p.Wait, wanted: Group, ring: p.RingRef) -> Fault:
    counts = [" + ".join(map(str, rows)) for rows in (op.rows, wanted[3])]
    return Fault("E223", f"`{ring}` waits for {counts[0]} rows of the tape; `{wanted[0]}` has {counts[1]} there", op)


def _unread(wanted: Group, ring: p.RingRef, op: p.Op | None) -> Fault:
    return Fault("E223", f"what `{ring}` brings for `{wanted[0]}` is waited for and not multiplied", op)


def _at(fault: Fault, place: str) -> Fault:
    fault.place = place
    return fault


def _flat(items: Items, block: int = 0) -> Iterator[tuple[p.Op, int]]:
    """Each op with the number of the innermost repetition."""
    for item in items:
        if isinstance(item, Loop):
            for i in range(item.count):
                yield from _flat(item.body, i)
        else:
            yield item.op, block
