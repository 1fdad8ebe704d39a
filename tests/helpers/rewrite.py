"""Programs with other ops in the place of some; `walk` says where ops are, and this puts them there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import evolve

from mks.dsl.program import ir as p
from mks.dsl.program.ir.walk import Path, children

type Ops = tuple[p.Op, ...]

# What holds others, with other bodies; `walk.children` reads them in this order.
_WITH: dict[type, Callable[[Any, Sequence[Ops]], p.Op]] = {
    p.Repeat: lambda op, bodies: evolve(op, body=bodies[0]),
    p.Experts: lambda op, bodies: evolve(op, body=bodies[0]),
    p.RowLoop: lambda op, bodies: evolve(op, body=bodies[0]),
    p.LayerLoop: lambda op, bodies: evolve(op, choices=bodies[0]),
    p.LayerSwitch: lambda op, bodies: evolve(
        op, bodies=tuple((part, ops) for (part, _), ops in zip(op.bodies, bodies, strict=True))
    ),
}


def with_bodies(op: p.Op, bodies: Sequence[Ops]) -> p.Op:
    """An op that holds other ops than it did; of one that holds none there are no `bodies`."""
    return _WITH[type(op)](op, bodies) if bodies else op


def mapped(ops: Ops, change: Callable[[p.Op], Sequence[p.Op]]) -> Ops:
    """Each op becomes what `change` makes of it, after the ops that it holds."""
    found: list[p.Op] = []
    for op in ops:
        found += change(with_bodies(op, [mapped(body.ops, change) for body in children(op)]))
    return tuple(found)


def rewritten(program: p.Program, change: Callable[[p.Op], Sequence[p.Op]]) -> p.Program:
    """A Program whose ops are all what `change` makes of them."""
    phases = (evolve(phase, body=mapped(phase.body, change)) for phase in program.phases)
    return evolve(program, phases=tuple(phases))


def with_body(program: p.Program, body: Ops, phase: int = 0) -> p.Program:
    """With other ops in one of its phases."""
    phases = program.phases
    return evolve(program, phases=(*phases[:phase], evolve(phases[phase], body=body), *phases[phase + 1 :]))


def replaced(program: p.Program, path: Path, ops: Ops) -> p.Program:
    """With other ops in the place of one."""
    at, *rest = path
    return with_body(program, put(program.phases[at].body, tuple(rest), ops), at)


def put(body: Ops, path: Path, ops: Ops) -> Ops:
    """Other ops in the place of the one at `path`."""
    at, *rest = path
    if not rest:
        return (*body[:at], *ops, *body[at + 1 :])
    inner = [each.ops for each in children(body[at])]
    number = rest[0] if len(children(body[at])[0].path) else 0
    below = rest[len(children(body[at])[0].path) :]
    inner[number] = put(inner[number], tuple(below), ops)
    return (*body[:at], with_bodies(body[at], inner), *body[at + 1 :])
