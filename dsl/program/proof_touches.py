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

_WRITTEN = frozenset({"outputs", "result", "cos", "sin", "weights"})


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
            exchange = program.exchanges[op.exchange]
            return Touches((), tuple(piece.result for piece in exchange.pieces) or (exchange.result,))
        case p.Put():
            found = _by_fields(op, place, program)
            return Touches(tuple(name for name in found.reads if name != op.buffer), (op.buffer,), found.updates)
        case p.Experts():
            return Touches((op.value, program.banks[op.bank].routes), (op.result,))
        case p.Greedy():
            return Touches((program.views[op.logits].buffer,), ())
        case p.Repeat() | p.Choice() | p.Layers():
            return Touches((), ())
    return _by_fields(op, place, program)


def _by_fields(op: p.Op, place: str, program: p.Program) -> Touches:
    """Fields that name buffers or are expressions; `outputs` and `result` are written, the others read."""
    reads: dict[str, None] = {}
    writes: list[str] = []
    updates: dict[str, None] = {}
    for name in _fields(type(op)):
        value = getattr(op, name)
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, str):
                if each in program.buffers and name in _WRITTEN:
                    writes.append(each)
                elif each in program.buffers:
                    reads[each] = None
            elif isinstance(each, m.Node.__value__) and not isinstance(op, p.Attend | p.Turns):
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
                for state, changed in _states(each, program):
                    (updates if changed else reads)[state] = None
                if each.op == "rope":
                    reads |= dict.fromkeys(_turns(each, program))


def _turns(call: m.Call, program: p.Program) -> tuple[str, ...]:
    """Where the rows' turns lie."""
    channels = program.instance.length(call.args[0].type.shape[-1])
    found = program.turns.get(p.turns_key(call, channels, program.instance))
    return () if found is None else (found.cos, found.sin)


def _states(call: m.Call, program: p.Program) -> list[tuple[str, bool]]:
    """The buffers of states among a call's operands, and whether it changes them in place."""
    op = registry.find(call.op)
    parameters = op.parameters if op is not None else ()
    updated = op.updates if op is not None else ()
    named = [(f"state {arg.name}", parameter in updated)
             for parameter, arg in zip(parameters, call.args, strict=False) if isinstance(arg, m.StateRef)]  # fmt: skip
    return [(name, changed) for name, changed in named if name in program.buffers]
