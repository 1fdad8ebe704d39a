"""A simulated step as lanes: what happens in one of them happens one after the other."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from attrs import evolve, field, frozen

from ...dsl.model.ir import Ref
from ...dsl.program import ir as p
from ..timeline.actions import SlotRef, Verb, Where
from ..timeline.simulate import Transfer
from ..timeline.summary import Prediction
from ..timeline.text import KINDS

type Spans = tuple[tuple[float, float], ...]


@frozen
class Event:
    """`start .. stop` in seconds, for `part`; until `held`, what arrived lies there and waits for its use.

    `about` says more than the label.
    """

    start: float
    stop: float
    label: str
    where: Where
    part: str
    bytes: int = 0
    held: float = 0.0
    about: str = ""

    @property
    def end(self) -> float:
        """When the lane is free again."""
        return max(self.stop, self.held)


@frozen
class Lane:
    """`kind` is `hbm`, `slot`, `mxu`, `vpu`, `link` or `wait`; lanes of a `group` belong together, and may be slots."""

    name: str
    kind: str
    group: str
    events: tuple[Event, ...] = field(repr=False)
    slot: int | None = None


def lanes(prediction: Prediction) -> tuple[Lane, ...]:
    """All lanes of a step, in the order in which they are shown; every slot of a ring has one, used or not."""
    trace = prediction.trace
    spans = {
        kind: [Event(s.start, s.stop, s.where.what, s.where, s.where.scope) for s in trace.spans if s.kind == kind]
        for kind in ("mxu", "vpu")
    }
    waits = [
        Event(s.start, s.stop, name(s.where), s.where, s.where.scope, about=f"waits for {KINDS[s.kind]}")
        for s in trace.spans
        if s.kind not in spans
    ]
    sent = [
        Event(m.start, m.stop, m.where.what, m.where, m.where.scope, about=f"round {m.number + 1}")
        for m in trace.messages
    ]
    return (
        Lane("HBM", "hbm", "HBM", tuple(busy(trace.transfers, prediction.target.memory.hbm_latency.value))),
        *_slots(prediction.program, trace.transfers),
        Lane("MXU", "mxu", "core", tuple(spans["mxu"])),
        Lane("VPU", "vpu", "core", tuple(spans["vpu"])),
        *apart(Lane("links", "link", "links", tuple(sorted(sent, key=_start)))),
        Lane("waits", "wait", "waits", tuple(waits)),
    )


def busy(transfers: Iterable[Transfer], latency: float) -> Iterator[Event]:
    """When bytes pass between HBM and VMEM: while any transfer is past its latency."""
    for start, stop in joined((t.start + latency, t.stop) for t in transfers if t.stop > t.start + latency):
        yield Event(start, stop, "busy", Where("", None, "HBM"), "")


def joined(spans: Iterable[tuple[float, float]]) -> Spans:
    """What overlaps or touches is one."""
    joined_up: list[tuple[float, float]] = []
    for start, stop in sorted(spans):
        if joined_up and start <= joined_up[-1][1]:
            joined_up[-1] = joined_up[-1][0], max(stop, joined_up[-1][1])
        else:
            joined_up.append((start, stop))
    return tuple(joined_up)


def _slots(program: p.Program, transfers: Iterable[Transfer]) -> Iterator[Lane]:
    """Those of rings first, then those of caches and experts, then the buffers of copies and the rest."""
    by_slot: dict[Ref | str, list[Event]] = {}
    groups: list[tuple[Ref, int]] = [(ring.name, ring.slots) for ring in program.rings.values()]
    groups += [(cache, ring.slots) for ring in program.caches.values() for cache in ring.caches]
    groups += [(bank.name, bank.slots) for bank in program.banks.values()]
    for group, slots in groups:
        by_slot |= {SlotRef(group, i): [] for i in range(slots)}
    parts: dict[Ref | str, str] = {copy.buffer: copy.part or "step" for copy in program.copies.values()}
    for t in sorted(transfers, key=lambda t: (t.start, t.stop)):
        # What leaves is done once it has arrived.
        occupied = 0.0 if t.where.verb is Verb.SAVE else t.taken
        event = Event(t.start, t.stop, t.where.what, t.where, parts.get(t.lane, t.where.scope), t.bytes, occupied)
        by_slot.setdefault(t.lane, []).append(event)
    for lane, events in by_slot.items():
        of, slot = (lane.of, lane.number) if isinstance(lane, SlotRef) else (lane, None)
        yield from apart(Lane(str(lane), "slot", str(of), tuple(events), slot))


def apart(lane: Lane) -> Iterator[Lane]:
    """As few lanes as there need be for no two events of one to overlap; events are in order of their starts."""
    ends: list[tuple[float, int]] = []
    rows: list[list[Event]] = []
    for event in lane.events:
        if ends and ends[0][0] <= event.start + 1e-15:
            _, at = heapq.heappop(ends)
        else:
            at = len(rows)
            rows.append([])
        rows[at].append(event)
        heapq.heappush(ends, (event.end, at))
    for i, events in enumerate(rows or [[]]):
        yield evolve(
            lane,
            name=lane.name if i == 0 else f"{lane.name} ({i + 1})",
            events=tuple(events),
            slot=None if i else lane.slot,
        )


def name(where: Where) -> str:
    """`mlp.h`; what has a place in its name already stays as it is."""
    return f"{where.scope}.{where.what}" if " " not in where.what else where.what


def _start(event: Event) -> float:
    return event.start
