"""Which buffers an op reads and writes, by their names."""

from __future__ import annotations

import attrs
from attrs import frozen

from ..model import ir as m
from ..model import ops as registry
from ..model.expressions import children
from . import ir as p

_WRITTEN = frozenset({"outputs", "result", "cos", "sin", "weights"})
_NO_BUFFERS = frozenset({"ring", "copy", "bank", "exchange", "product", "output"})


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
            sent = program.exchanges[op.exchange]
            return Touches((sent.value, *([sent.beside] if sent.beside else [])), ())
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
    for name in (field.name for field in attrs.fields(type(op)) if field.name not in _NO_BUFFERS):
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


def _read(node: m.Node, place: str, program: p.Program, reads: dict[str, None], updates: dict[str, None]) -> None:
    pending: list[tuple[m.Node, frozenset[str]]] = [(node, frozenset())]
    while pending:
        each, bound = pending.pop()
        name: str | None = None
        match each:
            case m.Let():
                pending += [(value, bound) for _, value in each.bindings]
                pending.append((each.body, bound.union(name for name, _ in each.bindings)))
                continue
            case m.Local():
                name = f"{place}.{each.name}" if f"{place}.{each.name}" in program.views else each.name
                name = None if each.name in bound else name
            case m.WeightRef():
                name = each.name
            case m.Call():
                for state, changed in _states(each, program):
                    (updates if changed else reads)[state] = None
                if each.op == "rope":
                    reads |= dict.fromkeys(_turns(each, program))
        if name is not None and name in program.views:
            reads[program.views[name].buffer] = None
        pending += [(child, bound) for child in children(each)]


def _turns(call: m.Call, program: p.Program) -> tuple[str, ...]:
    """Where the rows' turns lie."""
    channels = program.shares.length(call.args[0].type.shape[-1])
    found = program.turns.get(p.turns_key(call, channels, program.instance))
    return () if found is None else (found.cos, found.sin)


def _states(call: m.Call, program: p.Program) -> list[tuple[str, bool]]:
    """The buffers of states among a call's operands, and whether it changes them in place."""
    if not any(isinstance(arg, m.StateRef) for arg in call.args):
        return []
    op = registry.find(call.op)
    parameters = op.parameters if op is not None else ()
    updated = op.updates if op is not None else ()
    named = [(f"state {arg.name}", parameter in updated)
             for parameter, arg in zip(parameters, call.args, strict=False) if isinstance(arg, m.StateRef)]  # fmt: skip
    return [(name, changed) for name, changed in named if name in program.buffers]
