"""What lies in VMEM, as bands: each line of the bill, grouped by the part that it is for, and when it is in use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from attrs import field, frozen

from ...dsl.model.ir import Ref
from ...dsl.program import ir as p
from ...dsl.program.analysis.memory import Bill, Line
from ..timeline.actions import SlotRef
from ..timeline.summary import Prediction
from .lanes import Spans, joined
from .windows import scope_events

_LEAST = 1 / 200  # of the peak: lines below it are one band of their group


@frozen
class Band:
    """`lines` of the bill, together `bytes`, for `part` (`""`: the whole step). In use during `used`, in seconds."""

    name: str
    part: str
    bytes: int
    lines: tuple[Line, ...]
    used: Spans = field(repr=False)


def bands(prediction: Prediction, bill: Bill) -> tuple[Band, ...]:
    """From the bottom up: the whole step's, the step's own, each part's; their bytes are those of `bill.vmem`.

    A part's small lines are one band.
    """
    program = prediction.program
    groups: dict[str, list[Line]] = {"": [], "step": [], **{part: [] for part in program.instance.model.parts}}
    for each in bill.vmem:
        groups.setdefault(owner(program, each), []).append(each)
    during = _during(prediction)
    result = []
    for part, lines in groups.items():
        large = [line for line in lines if line.bytes >= bill.total * _LEAST]
        small = [line for line in lines if line.bytes < bill.total * _LEAST]
        result += [Band(line.name, part, line.bytes, (line,), during(line)) for line in large]
        if small:
            label = f"{len(small)} small ones{'' if part else ' of the whole step'}"
            name = small[0].name if len(small) == 1 else label
            used = joined(span for line in small for span in during(line))
            result.append(Band(name, part, sum(line.bytes for line in small), tuple(small), used))
    return tuple(result)


def owner(program: p.Program, line: Line) -> str:
    """The part that a line is for; `""` where several, or the whole step, have it."""
    if line.place:
        return line.place
    for copy in program.copies.values():
        if copy.buffer in line.of:
            return copy.part or "step"
    for ring in program.caches.values():
        if set(ring.buffers) & set(line.of):
            return ring.part
    return next((bank.part for bank in program.banks.values() if bank.name in line.of), "")


def _during(prediction: Prediction) -> Callable[[Line], Spans]:
    """When a line's room holds something; the whole step where the trace does not tell."""
    program = prediction.program
    moved: dict[Ref | str, list[tuple[float, float]]] = defaultdict(list)
    for t in prediction.trace.transfers:
        moved[t.lane].append((t.start, max(t.stop, t.taken)))
    sent: dict[object, list[tuple[float, float]]] = defaultdict(list)
    for message in prediction.trace.messages:
        sent[message.where.of].append((message.start, message.stop))
    ran: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in scope_events(prediction):
        ran[event.label].append((event.start, event.stop))
    slots: dict[Ref, tuple[Ref, int]] = {ring.name: (ring.name, ring.slots) for ring in program.rings.values()}
    for cache_ring in program.caches.values():
        for cache, buffer in zip(cache_ring.caches, cache_ring.buffers, strict=True):
            slots[buffer] = cache, cache_ring.slots
    slots |= {bank.name: (bank.name, bank.slots) for bank in program.banks.values()}
    copies = {copy.buffer: copy.part or "" for copy in program.copies.values()}

    def during(line: Line) -> Spans:
        for of in line.of:
            if of in slots:
                lane, count = slots[of]
                return joined(span for i in range(count) for span in moved[SlotRef(lane, i)])
            if isinstance(of, p.BufferRef) and of in copies:
                return joined([*moved[of], *ran[copies[of]]])
        if line.of and all(isinstance(of, p.CollectiveRef) for of in line.of):
            return joined(span for of in line.of for span in sent[of])
        return joined(ran[line.place]) if line.place else ((0.0, prediction.step),)

    return during
