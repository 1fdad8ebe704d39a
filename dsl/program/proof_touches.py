"""Which buffers an op reads and writes, by their names."""

from __future__ import annotations

from functools import cache
from typing import Any

import attrs
from attrs import frozen

from ..model import ir as m
from ..model import ops as registry
from ..model.expressions import walk
from . import ir as p

_WRITTEN = frozenset({"outputs", "result"})


@frozen
class Touches:
    """`updates` are read and written in place."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    updates: tuple[str, ...] = ()


# Of all ops of a Program, by their identity and place.
type Touched = dict[tuple[int, str], Touches]


def touches(op: p.Op, place: str, program: p.Program) -> Touches:
    """An op's buffers; loops and what only moves have none."""
    match op:
        case p.Dot():
            product = program.products[op.product]
            return Touches((product.operand,), (product.result,))
        case p.Lookup():
            return Touches((), (op.buffer,))
        case p.Send():
            return Touches((program.exchanges[op.exchange].value,), ())
        case p.Receive():
            return Touches((), (program.exchanges[op.exchange].result,))
        case p.Greedy():
            return Touches((program.views[op.logits].buffer,), ())
        case p.Repeat() | p.Choice() | p.Layers():
            return Touches((), ())
    return _by_fields(op, place, program)


def _by_fields(op: p.Op, place: str, program: p.Program) -> Touches:
    """Fields that name buffers or are expressions; `outputs` and `result` are written, the others read."""
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    updates: dict[str, None] = {}
    for name in _fields(type(op)):
        value = getattr(op, name)
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, str):
                if each in program.buffers:
                    (writes if name in _WRITTEN else reads)[each] = None
            elif isinstance(each, m.Node.__value__) and not isinstance(op, p.Attend):
                _read(each, place, program, reads, updates)
    return Touches(tuple(reads), tuple(writes), tuple(updates))


@cache
def _fields(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in attrs.fields(kind))


def _read(node: Any, place: str, program: p.Program, reads: dict[str, None], updates: dict[str, None]) -> None:
    bound: set[str] = set()
    for each in walk(node):
        match each:
            case m.Let():
                bound |= {name for name, _ in each.bindings}
            case m.Local():
                view = program.views.get(f"{place}.{each.name}") or program.views.get(each.name)
                if view is not None and each.name not in bound:
                    reads[view.buffer] = None
            case m.WeightRef():
                view = program.views.get(each.name)
                if view is not None:
                    reads[view.buffer] = None
            case m.Call():
                for state, changed in _states(each):
                    (updates if changed else reads)[state] = None


def _states(call: m.Call) -> list[tuple[str, bool]]:
    op = registry.find(call.op)
    parameters = op.parameters if op is not None else ()
    updated = op.updates if op is not None else ()
    return [(f"state {arg.name}", parameter in updated)
            for parameter, arg in zip(parameters, call.args, strict=False) if isinstance(arg, m.StateRef)]  # fmt: skip
