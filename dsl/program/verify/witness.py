"""Faults as diagnostics: places in the text, and the shortest steps that lead there."""

from __future__ import annotations

from ...diagnostics import Diagnostic, Label
from ...source import Span
from .. import ir as p
from ..ir.op_labels import copy_span, span
from ..ir.walk import walk
from .paths import Event, Fault

_BUG = "this comes from lowering, not from the text: a schedule that can be lowered must not allow it"


def diagnostic(program: p.Program, fault: Fault) -> Diagnostic:
    """The fault at its op's line, the event that it collides with, and the steps on its slot; all cores do the same."""
    op = fault.op or (fault.since[-1].op if fault.since else None)
    here = span_of(program, op, fault.place, fault.slot)
    before = next((e for e in reversed(fault.since) if e.op is not op), None)
    there = None if before is None else span_of(program, before.op, before.place, fault.slot)
    others = () if there is None or there == here or before is None else (Label(there, f"before: {before.text}"),)
    used = _user(program, op)
    if used is not None and used.span not in (here, there):
        others = (*others, Label(used.span, f"for `{used.name}`"))
    steps = [f"step {i + 1}: {event}" for i, event in enumerate(_needed(fault.since))]
    where = fault.place if fault.layer is None else f"layer {fault.layer}, {fault.place}"
    steps += [f"step {len(steps) + 1}: {where}: here, on every core"] if steps else []
    if fault.elsewhere:
        steps.append("not with the model's own layers, but with others of the same kinds, numbered from 0")
    label = None if here is None else Label(here, _word(op))
    return Diagnostic(fault.code, fault.message, label, others, (*steps, _BUG))


def _needed(since: tuple[Event, ...]) -> tuple[Event, ...]:
    """From the last start on; what happened to the slot before does not matter."""
    starts = [i for i, event in enumerate(since) if event.begins]
    return since[starts[-1] :] if starts else since[-1:]


def _user(program: p.Program, op: p.Op | None) -> p.Product | None:
    """The product that a ring's wait is for, or before the next one of which its start stands."""
    if not isinstance(op, p.Start | p.Wait):
        return None
    ops = walk(program)
    place = next((at.place for at in ops if at.op is op), None)
    users = (at.op for at in ops if at.place == place and isinstance(at.op, p.Dot))
    return next((made for made in (program.products[dot.product] for dot in users) if made.ring == op.ring), None)


def _word(op: p.Op | None) -> str:
    return "" if op is None else {p.Compute: "computed here", p.Dot: "multiplied here"}.get(type(op), "")


def span_of(program: p.Program, op: p.Op | None, place: str, slot: object = None) -> Span | None:
    """Where the text says what an op does; of one that names what is not there, the schedule."""
    try:
        return _span(program, op, place, slot)
    except LookupError:
        return program.schedule.span


def _span(program: p.Program, op: p.Op | None, place: str, slot: object) -> Span | None:
    found = None if op is None else span(op, place, program)
    if found is not None:
        return found
    if isinstance(slot, p.ProductRef) and slot in program.products:
        return program.products[slot].span
    if isinstance(slot, p.ArrayRef) and slot in program.copies:
        return copy_span(program.copies[slot], program)
    if isinstance(slot, p.BufferRef) and slot in program.buffers:
        return program.buffers[slot].span
    return program.schedule.span
