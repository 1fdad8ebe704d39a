"""Walks over a Program, one resource at a time: along every sequence of layers, or along the layers that it has.

A resource is a ring, a buffer with slots, a ring of caches, a set of exchange buffers. A core runs its ops one after
the other, and what is under way ends by itself: so what can go wrong with a resource depends on the order of the few
ops that touch it alone. A machine keeps what is known of it between ops; it counts from the layer at hand, so that
it has few states, and the states after any number of layers are found by trying each kind of layer in each state.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import pairwise

from attrs import Factory

from ...model.facts import STEP
from ...records import define, frozen
from .. import ir as p
from ..ir.walk import Path, Placed, children, phases

type Parts = tuple[str, ...]
type Run = tuple[Parts, ...]  # the layers of a phase
type Items = tuple[Placed | Loop, ...]


@frozen
class Loop:
    """`body` so many times."""

    count: int
    body: Items


@frozen
class Track:
    """The ops of a resource in a phase: before the layers, in each part, after the layers."""

    place: str
    before: Items
    parts: dict[str, Items]
    after: Items


# The layers of each phase, with the parts that each runs.
type Table = list[list[tuple[int, Parts]]]


@frozen
class Event:
    """Something that happened to a slot."""

    layer: int | None
    place: str
    op: p.Op
    slot: Hashable
    text: str
    begins: bool = False

    def __str__(self) -> str:
        where = self.place if self.layer is None else f"layer {self.layer}, {self.place}"
        return f"{where}: {self.text}"


class Fault(Exception):
    """A property that does not hold: at `op`, because of what happened to `slot`; `since` are those events.

    `elsewhere`: not with the layers that the model has, but with others of their kinds.
    """

    def __init__(self, code: str, message: str, op: p.Op | None, slot: Hashable = None) -> None:
        super().__init__(message)
        self.code, self.message, self.op, self.slot = code, message, op, slot
        self.place = STEP
        self.layer: int | None = None
        self.since: tuple[Event, ...] = ()
        self.elsewhere = False


@define
class Moment:
    """Where a walk is: `path` is that of the op at hand.

    `now` and `following` are the parts of this layer and the next, if the phase has such layers.

    `end`: its layers are over. `log` collects events where somebody wants to read them.
    """

    place: str = STEP
    path: Path = ()
    layer: int | None = None
    now: Parts | None = None
    following: Parts | None = None
    end: bool = False
    log: list[Event] | None = None

    def say(self, slot: Hashable, op: p.Op, text: str, *, begins: bool = False) -> None:
        """Write an event down; `begins`: what happened to the slot before does not matter any more."""
        if self.log is not None:
            self.log.append(Event(self.layer, self.place, op, slot, text, begins))


@define
class Automaton[State: Hashable]:
    """What is known of a resource; every method returns the state after, or raises `Fault`."""

    begin: State
    step: Callable[[State, p.Op, Moment], State]
    # When a layer with these parts is over.
    turn: Callable[[State, Parts], State] = Factory(lambda: lambda state, parts: state)
    # When a body begins or ends: what the ops of one body leave for one another does not pass.
    edge: Callable[[State], State] = Factory(lambda: lambda state: state)
    # When the layers of the last phase are over.
    end: Callable[[State], State] = Factory(lambda: lambda state: state)
    finish: Callable[[State], None] = Factory(lambda: lambda state: None)


def track(program: p.Program, touches: Callable[[Placed], bool]) -> tuple[Track, ...]:
    """Of each phase the ops that touch a resource, of which `touches` says so."""
    found = []
    for phase, ops in zip(program.phases, phases(program), strict=True):
        parts: dict[str, Items] = {}
        around: tuple[list[Placed], list[Placed]] = ([], [])
        after = phase.loop is None
        for at in ops:
            if isinstance(at.op, p.LayerLoop):
                after = True
                for switch in at.inside:
                    bodies = zip(children(switch.op), switch.bodies, strict=True)
                    parts |= {body.place or STEP: _items(ops, touches) for body, ops in bodies}
            else:
                around[after].append(at)
        before, rest = (_items(ops, touches) for ops in around)
        found.append(Track(phase.place, before, parts, rest))
    return tuple(found)


def _items(ops: Iterable[Placed], touches: Callable[[Placed], bool]) -> Items:
    """What is done with an expert comes before the op that does it, once."""
    found: list[Placed | Loop] = []
    for at in ops:
        inner = _items(at.inside, touches) if at.bodies else ()
        if isinstance(at.op, p.Repeat):
            found += [Loop(at.op.count, inner)] if inner else []
        elif isinstance(at.op, p.RowLoop):
            # What goes from row to row is set before the first.
            found += [at] if touches(at) else []
            found += [Loop(at.op.stop - at.op.start, inner)] if inner else []
            continue
        else:
            found += inner
        if touches(at):
            found.append(at)
    return tuple(found)


def layers(program: p.Program) -> Table:
    """Each layer that a phase runs, with the parts that it runs in the order of its places."""
    return [layers_of(phase) for phase in program.phases]


def layers_of(phase: p.Phase) -> list[tuple[int, Parts]]:
    op, table = phase.loop, phase.layer_parts
    if op is None:
        return []
    found = [(layer, table.get(layer, ())) for layer in range(op.start, op.stop)]
    chosen = {parts: _chosen(op, parts) for parts in {parts for _, parts in found}}
    return [(layer, chosen[parts]) for layer, parts in found]


def _chosen(op: p.LayerLoop, parts: Parts) -> Parts:
    found = (next((name for name, _ in choice.bodies if name in parts), None) for choice in op.choices)
    return tuple(name for name in found if name is not None)


def check[State: Hashable](
    machine: Automaton[State], ops: tuple[Track, ...], table: Table, exact: Automaton[State] | None = None
) -> Fault | None:
    """What is wrong along the Program's layers, or nothing; `exact` is the machine that knows how they end.

    First along every sequence, of any length, in which the same kinds of layers meet, phase after phase. What goes
    wrong in one of them is shown with the layers as they are, if it goes wrong there too.
    """
    paths = _everywhere(machine, ops, [[parts for _, parts in layers] for layers in table])
    if paths is None:
        return None
    fault = _along(exact or machine, ops, table)
    if fault is None:
        fault = _along(machine, ops, [list(enumerate(path)) for path in paths])
        assert fault is not None
        fault.elsewhere = True
    return fault


def _everywhere[State: Hashable](
    machine: Automaton[State], ops: tuple[Track, ...], table: list[list[Parts]]
) -> list[Run] | None:
    """A shortest sequence of layers in each phase along which something is wrong, if there is one."""
    begun: dict[State, tuple[Run, ...]] = {machine.begin: ()}
    for i, track in enumerate(ops):
        last = i == len(ops) - 1
        ended: dict[State, tuple[Run, ...]] = {}
        for state, before in begun.items():
            found = _phase(machine, state, track, table[i], last)
            if isinstance(found, tuple):
                # What comes after has no part in it: no layers are as good as any.
                return [*before, found, *[()] * (len(ops) - i - 1)]
            for then, path in found.items():
                ended.setdefault(then, (*before, path))
        begun = ended
    return None


def _phase[State: Hashable](
    machine: Automaton[State], begin: State, ops: Track, table: list[Parts], last: bool
) -> Run | dict[State, Run]:
    """The states in which a phase can end, each with layers that lead there; or layers along which something is wrong.

    Any of its layers may be the first, or the last.
    """
    after: dict[Parts, dict[Parts | None, None]] = {parts: {None: None} for parts in table}
    for one, other in pairwise(table):
        after[one][other] = None
    path: Run = ()
    ended: dict[State, Run] = {}
    try:
        if last or not table:
            ended[_end(machine, _begin(machine, begin, ops, Moment()), ops, Moment(), last)] = ()
        waiting: list[tuple[State, Parts, Run]] = []
        for parts in after:
            path = (parts,)
            waiting.append((_begin(machine, begin, ops, Moment(following=parts)), parts, ()))
        seen = {(state, parts) for state, parts, _ in waiting}
        for state, parts, before in waiting:  # grows
            for following in after[parts]:
                path = (*before, parts, *(() if following is None else (following,)))
                then = _layer(machine, state, ops, Moment(now=parts, following=following))
                if following is None:
                    ended.setdefault(_end(machine, then, ops, Moment(), last), path)
                elif (then, following) not in seen:
                    seen.add((then, following))
                    waiting.append((then, following, (*before, parts)))
    except Fault:
        return path
    return ended


def _along[State: Hashable](machine: Automaton[State], ops: tuple[Track, ...], table: Table) -> Fault | None:
    at = Moment(log=[])
    state = machine.begin
    try:
        for i, (track, layers) in enumerate(zip(ops, table, strict=True)):
            at.following = layers[0][1] if layers else None
            state = _begin(machine, state, track, at)
            for number, (layer, parts) in enumerate(layers):
                at.layer, at.now = layer, parts
                at.following = layers[number + 1][1] if number + 1 < len(layers) else None
                state = _layer(machine, state, track, at)
            at.layer = at.now = at.following = None
            state = _end(machine, state, track, at, i == len(ops) - 1)
    except Fault as fault:
        fault.place, fault.layer = at.place, at.layer
        same = [event for event in at.log or () if event.slot == fault.slot]
        fault.since = tuple(same[-4:])
        return fault
    return None


def _begin[State: Hashable](machine: Automaton[State], state: State, ops: Track, at: Moment) -> State:
    at.end, at.place = False, ops.place
    return _run(machine, machine.edge(state), ops.before, at)


def _layer[State: Hashable](machine: Automaton[State], state: State, ops: Track, at: Moment) -> State:
    for part in at.now or ():
        at.place = part
        state = machine.edge(_run(machine, machine.edge(state), ops.parts.get(part, ()), at))
    at.place = ops.place
    return machine.turn(state, at.now or ())


def _end[State: Hashable](machine: Automaton[State], state: State, ops: Track, at: Moment, last: bool) -> State:
    at.end, at.place = True, ops.place
    state = _run(machine, machine.end(state) if last else state, ops.after, at)
    if last:
        machine.finish(state)
    return machine.edge(state)


def _run[State: Hashable](machine: Automaton[State], state: State, items: Items, at: Moment) -> State:
    for item in items:
        if isinstance(item, Loop):
            for _ in range(item.count):
                state = machine.edge(_run(machine, machine.edge(state), item.body, at))
        else:
            at.path = item.path
            state = machine.step(state, item.op, at)
    return state
