"""Cores that send one another messages, each at its own pace, through two calls of a kernel in a row."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache

from attrs import frozen

type Talk = tuple[tuple[str, str, str], ...]  # `barrier`, `send` or `receive`, the set of buffers, the exchange
type State = tuple[tuple[int, ...], frozenset[tuple[int, int, int]], frozenset, frozenset]


@frozen
class _Step:
    """One of a core's events: `what` is `enter`, `leave`, `signal`, `await`, `send` or `look`."""

    what: str
    name: Hashable = ""
    units: int = 0
    who: Hashable = ""


@cache
def meet(talk: Talk, cores: int) -> tuple[dict[Hashable, frozenset[Hashable]], frozenset[str]]:
    """What each core finds in its buffers in every order of events, and what is wrong besides, until something is.

    A message is written into the receiver's slot of the sender. It must come in the call in which it was sent, also
    when one core has left the first call and is in the second.
    """
    steps = tuple(step for call in (0, 1) for step in _steps(talk, call, cores))
    calls = _calls(steps)
    seen: dict[Hashable, set[Hashable]] = {}
    wrong: set[str] = set()
    start: State = ((0,) * cores, frozenset(), frozenset(), frozenset())
    known, open_ = {start}, [start]
    while open_ and not wrong:
        state = open_.pop()
        after = [_arrive(state, message, steps, calls, wrong) for message in state[1]]
        for core in range(cores):
            if state[0][core] < len(steps):
                then = _advance(state, core, steps, cores, seen, wrong)
                after += [] if then is None else [then]
        if not after and any(at < len(steps) for at in state[0]):
            wrong.add("cores wait for one another for ever")
        for then in after:
            if then not in known:
                known.add(then)
                open_.append(then)
    return {who: frozenset(tags) for who, tags in seen.items()}, frozenset(wrong)


def _steps(talk: Talk, call: int, cores: int) -> list[_Step]:
    parity: dict[str, int] = {}
    found = [_Step("enter")]
    sent: dict[str, int] = {}
    for what, key, name in talk:
        half = parity.get(key, 0)
        if what == "barrier":
            found += [_Step("signal"), _Step("await", "barrier", cores - 1)]
        elif what == "send":
            sent[name] = half
            found.append(_Step("send", (key, half), 1, (call, name)))
        else:
            half = sent[name]
            found.append(_Step("await", ("received", key, half), cores - 1))
            found.append(_Step("look", (key, half), 0, (call, name)))
            found.append(_Step("await", ("sent", key, half), cores - 1))
            parity[key] = 1 - parity.get(key, 0)
    return [*found, _Step("leave")]


def _calls(steps: tuple[_Step, ...]) -> list[int | None]:
    """In which call a core is that has done so many steps."""
    found: list[int | None] = [None]
    number = -1
    for step in steps:
        number += step.what == "enter"
        found.append(None if step.what == "leave" else number)
    return found


def _arrive(
    state: State, message: tuple[int, int, int], steps: tuple[_Step, ...], calls: list[int | None], wrong: set[str]
) -> State:
    at, pending, counts, memory = state
    sender, receiver, number = message
    step = steps[number]
    if calls[at[receiver]] != calls[number]:
        wrong.add("a message comes to a core that is not in the call")
    units, held = dict(counts), dict(memory)
    key, half = step.name  # type: ignore[misc]
    held[receiver, key, half, sender] = step.who
    for semaphore in ((sender, ("sent", key, half)), (receiver, ("received", key, half))):
        units[semaphore] = units.get(semaphore, 0) + 1
    return at, pending - {message}, _items(units), _items(held)


def _advance(
    state: State, core: int, steps: tuple[_Step, ...], cores: int, seen: dict[Hashable, set[Hashable]], wrong: set[str]
) -> State | None:
    at, pending, counts, memory = state
    step = steps[at[core]]
    units, held = dict(counts), dict(memory)
    if step.what == "signal":
        for other in range(cores):
            if other != core:
                units[other, "barrier"] = units.get((other, "barrier"), 0) + 1
    elif step.what == "await":
        if units.get((core, step.name), 0) < step.units:
            return None
        units[core, step.name] -= step.units
    elif step.what == "send":
        key, half = step.name  # type: ignore[misc]
        held[core, key, half, core] = step.who
        pending |= {(core, other, at[core]) for other in range(cores) if other != core}
    elif step.what == "look":
        for sender in range(cores):
            seen.setdefault((step.who, core, sender), set()).add(held.get((core, *step.name, sender)))  # type: ignore[misc]
    elif step.what == "leave" and (
        any(message[0] == core for message in pending)
        or any(count for (whose, name), count in units.items() if whose == core and name != "barrier")
    ):
        wrong.add("a core leaves with messages under way")
    ahead = tuple(place + (i == core) for i, place in enumerate(at))
    return ahead, frozenset(pending), _items(units), _items(held)


def _items(held: dict) -> frozenset:
    return frozenset(item for item in held.items() if item[1])
