"""One walk over a Program: each op with the path that names it, its place, and how often a call runs it.

`children` says for every op which ops it holds, and nobody else asks for an op's class to find them. What follows a
Program in its own way, as an emitter or a simulation does, follows `tree`; what asks about all ops reads `walk`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from attrs import field

from ...records import frozen
from .ops import Experts, LayerLoop, LayerSwitch, Op, Repeat, RowLoop
from .phases import Phase
from .program import Program

# Where an op stands: the number of its phase, its number in the phase's body, then its number in each body on the way
# to it. An op that holds several bodies has the number of the body before that of the op. No two have the same path.
type Path = tuple[int, ...]


@frozen
class Body:
    """Ops that another holds; each run of that one runs them `trips` times, or once for each of `layers`.

    `path` leads to them from the op that holds them. Those with a `place` of a `part` run where a layer has it.
    """

    ops: tuple[Op, ...]
    path: Path = ()
    trips: int = 1
    layers: range | None = None
    place: str | None = None
    part: bool = False


# The ops that hold others. How many experts are chosen no Program says: their body counts for one.
_BODIES: dict[type, Callable[[Any], tuple[Body, ...]]] = {
    Repeat: lambda op: (Body(op.body, trips=op.count),),
    Experts: lambda op: (Body(op.body),),
    RowLoop: lambda op: (Body(op.body, trips=op.stop - op.start, place=op.place),),
    LayerLoop: lambda op: (Body(op.choices, trips=op.stop - op.start, layers=range(op.start, op.stop)),),
    LayerSwitch: lambda op: tuple(Body(ops, (i,), place=part, part=True) for i, (part, ops) in enumerate(op.bodies)),
}


_PLACED = "_placed"  # in a Program's `__dict__`, beside its cached properties


def children(op: Op) -> tuple[Body, ...]:
    """What an op holds: nothing, one body, or one for each part of a switch."""
    held = _BODIES.get(type(op))
    return () if held is None else held(op)


@frozen(eq=False)
class Placed:
    """An op and where it is: its `path`, the part or step whose it is, and how many `trips` a call makes through it.

    Inside `Experts` the trips are those of one expert. `bodies` are the ops that it holds, as `children` lists them.
    """

    op: Op
    path: Path
    place: str
    trips: int
    bodies: tuple[tuple[Placed, ...], ...] = field(repr=False)

    @property
    def inside(self) -> tuple[Placed, ...]:
        """The ops of all bodies."""
        return tuple(each for body in self.bodies for each in body)


def tree(program: Program) -> tuple[Placed, ...]:
    """A Program's ops in order, phase after phase, with those that they hold."""
    return tuple(each for ops in phases(program) for each in ops)


def phases(program: Program) -> tuple[tuple[Placed, ...], ...]:
    """The ops of each phase in order, with those that they hold; kept with the Program, as many ask."""
    known = vars(program)
    if _PLACED not in known:
        known[_PLACED] = tuple(
            _placed(program, phase.body, (i,), phase.place, 1) for i, phase in enumerate(program.phases)
        )
    found: tuple[tuple[Placed, ...], ...] = known[_PLACED]
    return found


def walk(program: Program) -> Iterator[Placed]:
    """All ops, each before those that it holds."""
    return flat(tree(program))


def flat(ops: tuple[Placed, ...]) -> Iterator[Placed]:
    """Ops and all that they hold."""
    for each in ops:
        yield each
        if each.bodies:
            yield from flat(each.inside)


def executed(program: Program) -> Iterator[Placed]:
    """Each op as often as a call runs it, in that order: layer by layer; what is done with an expert, once."""
    for phase, ops in zip(program.phases, phases(program), strict=True):
        yield from _executed(ops, phase, ())


def _placed(program: Program, ops: tuple[Op, ...], path: Path, place: str, trips: int) -> tuple[Placed, ...]:
    found = []
    for i, op in enumerate(ops):
        here = (*path, i)
        bodies = []
        for body in children(op):
            own, inner = body.place or place, trips * body.trips if not body.part else program.entries(body.place)
            bodies.append(_placed(program, body.ops, here + body.path, own, inner))
        found.append(Placed(op, here, place, trips, tuple(bodies)))
    return tuple(found)


def _executed(ops: tuple[Placed, ...], phase: Phase, parts: tuple[str, ...]) -> Iterator[Placed]:
    for each in ops:
        yield each
        for body, inner in zip(children(each.op), each.bodies, strict=True):
            if body.layers is not None:
                for layer in body.layers:
                    yield from _executed(inner, phase, phase.layer_parts.get(layer, ()))
            elif not body.part or body.place in parts:
                for _ in range(body.trips):
                    yield from _executed(inner, phase, parts)
