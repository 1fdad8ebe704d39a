"""What each op is about, and where the text says what it does: `LABELS` has a row for each.

Scopes of a kernel, listings and diagnostics name and place ops by it. How long an op takes is told by
`backends/timeline/unroll.py` (`ACTIONS`), as a Program knows no machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...model.facts import STEP
from ...model.ir import Ref
from ...records import frozen
from ...source import Span
from .. import ir as p

type SpanRule = Callable[[Any, str, p.Program], Span | None]


@frozen
class OpLabel:
    """`subject` is what an op is about, if there is such a thing; `span` where the text says it, or none."""

    subject: Callable[[Any], Ref | None]
    span: SpanRule


def subject(op: p.Op) -> Ref | None:
    """The buffer, product, copy, ring or collective that an op is about; nothing for one that is about all."""
    return LABELS[type(op)].subject(op)


def span(op: p.Op, place: str, program: p.Program) -> Span | None:
    """Where the text says what an op does in a place; nothing for an op that stands for no line of it."""
    return LABELS[type(op)].span(op, place, program)


def _none(op: Any, place: str, program: p.Program) -> Span | None:
    return None


def _own(op: Any, place: str, program: p.Program) -> Span | None:
    return op.span


def _call(op: Any, place: str, program: p.Program) -> Span | None:
    return op.call.span


def _index(op: Any, place: str, program: p.Program) -> Span | None:
    return op.index.span


def _product(op: Any, place: str, program: p.Program) -> Span | None:
    return program.products[op.product].span


def _bank(op: Any, place: str, program: p.Program) -> Span | None:
    return program.banks[op.bank].span


def _exchange(op: Any, place: str, program: p.Program) -> Span | None:
    return None if op.exchange is None else program.exchanges[op.exchange].span


def _ring(op: Any, place: str, program: p.Program) -> Span | None:
    """Its line in the schedule, or the place's first product that passes through it."""
    said = program.rings[op.ring].span if op.ring in program.rings else None
    if said is not None:
        return said
    own = [made for made in program.products.values() if made.ring == op.ring]
    return next((made.span for made in (*(each for each in own if each.place == place), *own)), None)


def _copy(op: Any, place: str, program: p.Program) -> Span | None:
    return copy_span(program.copies[op.copy], program)


def copy_span(copy: p.Copy, program: p.Program) -> Span | None:
    """The line that prefetches it, or what declares it."""
    kind = program.arrays[copy.name].kind if copy.name in program.arrays else "entry"
    said = next(
        (x.span for x in program.schedule.prefetches if x.kind == kind and (kind == "vectors" or x.what == copy.part)),
        None,
    )
    declared = program.buffers[copy.buffer].span
    parts, place = program.instance.model.parts, copy.part or STEP
    return said or declared or (parts[place].span if place in parts else program.phase_of(place).step.span)


def _cache(op: Any, place: str, program: p.Program) -> Span | None:
    cache = program.caches[op.ring]
    said = next((x.span for x in program.schedule.prefetches if x.kind == "cache" and x.what == cache.part), None)
    return said or program.buffers[cache.buffers[0]].span or program.instance.model.parts[cache.part].span


def _output(op: Any, place: str, program: p.Program) -> Span | None:
    return program.buffers[op.buffer].span


def _nothing(op: Any) -> Ref | None:
    return None


LABELS: dict[type, OpLabel] = {
    p.Barrier: OpLabel(_nothing, _none),
    p.Start: OpLabel(lambda op: op.ring, _ring),
    p.Wait: OpLabel(lambda op: op.ring, _ring),
    p.Dot: OpLabel(lambda op: op.product, _product),
    p.CopyStart: OpLabel(lambda op: op.copy, _copy),
    p.CopyWait: OpLabel(lambda op: op.copy, _copy),
    p.StoreStart: OpLabel(lambda op: op.copy, _copy),
    p.StoreWait: OpLabel(lambda op: op.copy, _copy),
    p.Lookup: OpLabel(_nothing, _index),
    p.Compute: OpLabel(lambda op: op.outputs[0], _own),
    p.Send: OpLabel(lambda op: op.exchange, _exchange),
    p.Receive: OpLabel(lambda op: op.exchange, _exchange),
    p.StartTiles: OpLabel(lambda op: op.ring, _cache),
    p.Attend: OpLabel(lambda op: op.result, _call),
    p.AttendBlock: OpLabel(lambda op: op.result, _call),
    p.ArgmaxValue: OpLabel(lambda op: op.result, _call),
    p.Keep: OpLabel(lambda op: op.buffer, _own),
    p.RowLoop: OpLabel(_nothing, _none),
    p.RopeTables: OpLabel(_nothing, _call),
    p.Put: OpLabel(lambda op: op.buffer, _own),
    p.Route: OpLabel(lambda op: op.bank, _bank),
    p.Fetch: OpLabel(lambda op: op.bank, _bank),
    p.ExpertDot: OpLabel(lambda op: op.bank, _bank),
    p.Experts: OpLabel(lambda op: op.bank, _bank),
    p.Emit: OpLabel(_nothing, _output),
    p.Argmax: OpLabel(_nothing, _exchange),
    p.Repeat: OpLabel(_nothing, _none),
    p.LayerSwitch: OpLabel(_nothing, _none),
    p.LayerLoop: OpLabel(_nothing, _none),
}
