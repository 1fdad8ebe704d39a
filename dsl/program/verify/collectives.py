"""Collectives and caches: what is sent is received, on buffers of its own, by cores that have all entered.

All cores run one Program: which parts run the layer table says, which all have, and nothing else chooses what a core
does. So all run the same collectives in the same order, and where each is received before the next is sent on the same
buffers, the n-th of one core meets the n-th of the others: no core waits for what another does not send.
"""

from __future__ import annotations

from ...records import frozen
from .. import ir as p
from ..ir.scratch import ExchangeSet, exchange_set
from .paths import Automaton, Fault, Moment, Parts


def set_of(program: p.Program, op: p.Op) -> ExchangeSet | None:
    """The set of buffers that an op's exchange goes through."""
    name = op.exchange if isinstance(op, p.Send | p.Receive | p.Argmax | p.ArgmaxValue) else None
    return None if name is None else exchange_set(program, program.exchanges[name])


def exchange_machine() -> Automaton[p.CollectiveRef | None]:
    """Of one set of buffers: the state is the exchange under way, or nothing."""

    def send(state: p.CollectiveRef | None, name: p.CollectiveRef, op: p.Op, at: Moment) -> p.CollectiveRef | None:
        if state:
            raise Fault("E225", f"`{name}` is sent while `{state}` is under way on the same buffers", op, "set")
        at.say("set", op, f"`{name}` is sent", begins=True)
        return name

    def receive(state: p.CollectiveRef | None, name: p.CollectiveRef, op: p.Op, at: Moment) -> p.CollectiveRef | None:
        if not state:
            raise Fault("E224", f"`{name}` waits for messages that were not sent", op, "set")
        if state != name:
            raise Fault("E225", f"`{name}` receives on buffers on which `{state}` is under way", op, "set")
        at.say("set", op, f"`{name}` is received")
        return None

    def step(state: p.CollectiveRef | None, op: p.Op, at: Moment) -> p.CollectiveRef | None:
        match op:
            case p.Send():
                return send(state, op.exchange, op, at)
            case p.Receive():
                return receive(state, op.exchange, op, at)
            case p.Argmax() | p.ArgmaxValue() if op.exchange is not None:
                return receive(send(state, op.exchange, op, at), op.exchange, op, at)
        return state

    def idle(state: p.CollectiveRef | None) -> p.CollectiveRef | None:
        """A body receives what it sends."""
        if state:
            raise Fault("E222", f"`{state}` is sent and not received where it was sent", None, "set")
        return state

    def finish(state: p.CollectiveRef | None) -> None:
        idle(state)

    return Automaton(None, step, lambda state, _: idle(state), idle, idle, finish)


@frozen
class Entry:
    """Whether the cores have met, and the last exchange since. To meet again does no harm."""

    met: bool = False
    last: p.CollectiveRef | None = None


def barrier_machine(program: p.Program) -> Automaton[Entry]:
    """All cores have entered before the first message; the last collective shows that all have left the barrier."""

    def step(state: Entry, op: p.Op, at: Moment) -> Entry:
        if isinstance(op, p.Barrier):
            at.say("barrier", op, "the cores meet")
            return Entry(True)
        name = op.exchange if isinstance(op, p.Send | p.Argmax | p.ArgmaxValue) else None
        if name is None:
            return state
        if not state.met:
            raise Fault("E226", f"`{name}` is sent to cores that may not have entered the call", op, "barrier")
        at.say("barrier", op, f"`{name}` is sent", begins=True)
        return Entry(True, name)

    def finish(state: Entry) -> None:
        # A model without layers may have none at all; then nothing is sent either.
        if state.met and state.last and set(program.exchanges[state.last].axes) != set(program.schedule.over_all):
            said = f"the last collective, `{state.last}`, is not over all cores"
            raise Fault("E226", f"{said}: one may leave while another is still at the barrier", None, "barrier")

    return Automaton(Entry(), step, finish=finish)


def tiles_machine(program: p.Program, ring: p.CacheRingRef) -> Automaton[str]:
    """Of a ring of caches: whether a layer's first tiles are under way, `here` or since an earlier layer."""
    part = program.caches[ring].part

    def own(op: p.Op, at: Moment) -> None:
        if at.place != part:
            raise Fault("E220", f"`{at.place}` uses `{ring}`, of which it has no entry", op, "tiles")

    def step(state: str, op: p.Op, at: Moment) -> str:
        own(op, at)
        if isinstance(op, p.StartTiles):
            if state:
                raise Fault("E221", f"tiles of `{ring}` start into slots that others fill", op, "tiles")
            at.say("tiles", op, f"tiles of `{ring}` start")
            return "here"
        if state == "here":
            at.say("tiles", op, f"tiles of `{ring}` are used")
            return ""
        if state:
            raise Fault("E223", f"`{ring}` waits for tiles of another layer", op, "tiles")
        raise Fault("E224", f"`{ring}` waits for tiles that never start", op, "tiles")

    def turn(state: str, _: Parts) -> str:
        return "earlier" if state else ""

    def finish(state: str) -> None:
        if state:
            raise Fault("E222", f"tiles of `{ring}` are never waited for", None, "tiles")

    return Automaton("", step, turn, finish=finish)


def bank_machine(program: p.Program, name: p.ExpertPoolRef) -> Automaton[frozenset[int] | None]:
    """Of a part's experts: the slots into which some are coming, of those that were chosen; `None` if none were.

    How many were chosen differs from core to core; what is done with each has no part in what cores do together.
    """
    bank = program.banks[name]
    slots = frozenset(range(bank.slots))

    def fetch(coming: frozenset[int] | None, op: p.Fetch, at: Moment) -> frozenset[int]:
        own = frozenset(range(op.first, op.stop))
        if coming is None:
            raise Fault("E220", f"`{name}` start before they are chosen", op, "experts")
        if own & coming:
            raise Fault("E221", f"`{name}` start into slots that others fill", op, "experts")
        if own - slots:
            raise Fault("E221", f"`{name}` start into slots beyond the {bank.slots} that there are", op, "experts")
        at.say("experts", op, f"of `{name}` those from {op.first + 1} to {op.stop} start")
        return coming | own

    def step(coming: frozenset[int] | None, op: p.Op, at: Moment) -> frozenset[int]:
        if at.place != bank.part:
            raise Fault("E220", f"`{at.place}` uses `{name}`, of which it has no entry", op, "experts")
        match op:
            case p.Route():
                if coming:
                    raise Fault("E221", f"others are chosen while those of `{name}` come", op, "experts")
                at.say("experts", op, f"those of `{name}` are chosen")
                return frozenset()
            case p.Fetch():
                return fetch(coming, op, at)
        if coming != slots:
            raise Fault("E224", f"`{name}` waits for experts that never start", op, "experts")
        at.say("experts", op, f"those of `{name}` are used")
        return frozenset()

    def turn(coming: frozenset[int] | None, _: Parts) -> None:
        if coming:
            raise Fault("E222", f"what starts for `{name}` is not waited for in its layer", None, "experts")

    def finish(coming: frozenset[int] | None) -> None:
        turn(coming, ())

    return Automaton(None, step, turn, finish=finish)
