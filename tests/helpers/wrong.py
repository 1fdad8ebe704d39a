"""Programs of which one thing is another: every number, name, type and axis, every op, and every leaf of an expression.

`helpers.mutants` changes the order of events; these change what is touched and what is computed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise
from typing import Any

import attrs
from attrs import evolve
from helpers.mutants import Mutant, bodies, ordered, placed
from helpers.rewrite import replaced

from mks.dsl.collectives.collective import CollectiveKind
from mks.dsl.collectives.kinds import table as kinds
from mks.dsl.model import ir as m
from mks.dsl.program import ir as p
from mks.dsl.source import Span

THINGS = (
    "buffers",
    "views",
    "rings",
    "products",
    "copies",
    "caches",
    "banks",
    "exchanges",
    "turns",
    "arrays",
    "outputs",
)
# Words of which there are few, each with those that could stand in its place.
_WORDS = (
    ("f32", "bf16", "int32"),
    ("state", "cache", "latents", "vectors"),
    ("absorb", "expand"),
)


def wrong(program: p.Program) -> Iterator[Mutant]:
    """All of them, each with a few words."""
    yield from things(program)
    yield from exchanged(program)
    yield from ops(program)


def things(program: p.Program) -> Iterator[Mutant]:
    """Every field of everything that ops are given."""
    for kind in THINGS:
        held = getattr(program, kind)
        for name, thing in held.items():
            for words, other in _changed(thing, program, kind):
                yield f"{kind} {name}: {words}", evolve(program, **{kind: held | {name: other}})
    for static, values in program.scalars.items():
        other = program.scalars | {static: (*values[:-1], values[-1] + 1)}
        yield f"scalars {static.span.text}: another number in the last layer", evolve(program, scalars=other)


def exchanged(program: p.Program) -> Iterator[Mutant]:
    """Two things of a kind, each in the other's place."""
    for kind in THINGS:
        held = getattr(program, kind)
        for a, b in combinations(held, 2):
            one, other = held[a], held[b]
            if _alike(one, other):
                if hasattr(one, "name"):
                    one, other = evolve(one, name=b), evolve(other, name=a)
                if held | {a: other, b: one} != held:
                    yield f"{kind} {a} and {b} exchanged", evolve(program, **{kind: held | {a: other, b: one}})


def _alike(a: Any, b: Any) -> bool:
    """Whether two things differ, and nothing tells them apart at once."""
    return a != b and all(getattr(a, name, 0) == getattr(b, name, 0) for name in ("shape", "dtype", "slots", "kind"))


def ops(program: p.Program) -> Iterator[Mutant]:
    """Every op gone, twice, later, and with another field."""
    for path, op in placed(program):
        where = f"{type(op).__name__} at {'.'.join(map(str, path))}"
        if not isinstance(op, p.LayerLoop):
            yield f"without {where}", replaced(program, path, ())
            yield f"twice {where}", replaced(program, path, (op, op))
        for words, other in _changed(op, program, ""):
            yield f"{where}: {words}", replaced(program, path, (other,))
    for path, body in bodies(program):
        for at, (one, other) in enumerate(pairwise(body)):
            swapped = (*body[:at], other, one, *body[at + 2 :])
            names = f"{type(one).__name__} and {type(other).__name__}"
            yield f"neighbours {names} at {'.'.join(map(str, (*path, at)))} exchanged", ordered(program, path, swapped)


def _changed(thing: Any, program: p.Program, kind: str) -> Iterator[tuple[str, Any]]:
    """A thing with one field, however deep, changed."""
    for field in attrs.fields(type(thing)):
        value = getattr(thing, field.name)
        if field.name in ("name", "place", "span", "body", "bodies", "choices") or isinstance(value, Span):
            continue
        guard, allowed = field.name == "guard", _classes(field.type)
        for words, other in _guards(value, program) if guard else _values(value, program):
            if not all(isinstance(each, allowed) for each in _refs(other)):
                continue
            yield f"{field.name} {words}", evolve(thing, **{field.name: other})


def _classes(declared: Any) -> tuple[type, ...]:
    """The references that a field takes, by its declaration."""
    named = (getattr(p, name, None) for name in re.findall(r"\w+Ref\b", str(declared)))
    return tuple(each for each in named if each is not None) or (m.Ref,)


def _refs(value: Any) -> list[m.Ref]:
    return [each for each in (value if isinstance(value, tuple) else (value,)) if isinstance(each, m.Ref)]


def _guards(value: m.Static | None, program: p.Program) -> Iterator[tuple[str, Any]]:
    if value is not None:
        yield "gone", None
        return
    for static in program.scalars:
        if len(set(program.scalars[static])) > 1:
            yield f"is {static.span.text}", static
            return


def _values(value: Any, program: p.Program) -> Iterator[tuple[str, Any]]:
    match value:
        case bool():
            yield f"is {not value}", not value
        case int():
            yield from (
                (f"{value} is {other}", other)
                for other in dict.fromkeys((value - 1, value + 1, value * 2))
                if other != value
            )
        case str() | m.Ref():
            yield from _names(value, program)
        case tuple():
            yield from _tuples(value, program)
        case (
            m.Call()
            | m.Local()
            | m.Read()
            | m.WeightRef()
            | m.StateRef()
            | m.Select()
            | m.Let()
            | m.Experts()
            | m.Slice()
        ):
            yield from nodes(value, program)
        case CollectiveKind():
            yield from ((f"`{value.name}` is `{other}`", kind) for other, kind in kinds.items() if kind != value)
        case m.Static() | m.Input() | m.Codec() | None:
            return
        case _ if attrs.has(type(value)):
            yield from _changed(value, program, "")


def _tuples(value: tuple[Any, ...], program: p.Program) -> Iterator[tuple[str, Any]]:
    for i, each in enumerate(value):
        for words, other in _values(each, program):
            yield f"{i}: {words}", (*value[:i], other, *value[i + 1 :])
        yield f"without {i}", (*value[:i], *value[i + 1 :])
    for i, (one, other) in enumerate(pairwise(value)):
        if one != other:
            yield f"{i} and {i + 1} exchanged", (*value[:i], other, one, *value[i + 2 :])


def _names(value: str | m.Ref, program: p.Program) -> Iterator[tuple[str, Any]]:
    """Another name of the same kind, of something as much alike as there is; other words of the same choice."""
    for choice in _WORDS:
        if value in choice:
            yield from ((f"`{value}` is `{other}`", other) for other in choice if other != value)
            return
    for kind in (*THINGS, "weights"):
        held: Mapping[Any, Any] = program.instance.model.weights if kind == "weights" else getattr(program, kind)
        if value in held:
            others = [
                name
                for name, thing in held.items()
                if name != value
                and getattr(thing, "shape", 0) == getattr(held[value], "shape", 0)
                and getattr(thing, "dtype", 0) == getattr(held[value], "dtype", 0)
            ]
            yield from ((f"`{value}` is `{other}`", other) for other in others[:2])
            if not others:
                yield from ((f"`{value}` is `{other}`", other) for other in [n for n in held if n != value][:1])
            return
    if value and value in dict(program.schedule.mesh):
        yield from ((f"`{value}` is `{other}`", other) for other, _ in program.schedule.mesh if other != value)


def nodes(node: m.Node, program: p.Program) -> Iterator[tuple[str, m.Node]]:
    """An expression with another leaf of the same shape, or two operands exchanged."""
    match node:
        case m.Local() | m.Read():
            for name, other in _locals(node, program):
                yield f"reads `{name}` for `{node.name if isinstance(node, m.Local) else node.ref}`", other
        case m.WeightRef() | m.StateRef():
            model = program.instance.model
            held = model.weights if isinstance(node, m.WeightRef) else model.states
            part = held[node.name].part
            others = [
                x.name
                for x in held.values()
                if x.name != node.name and x.part == part and x.type.shape == node.type.shape
            ]
            yield from ((f"reads `{other}` for `{node.name}`", evolve(node, name=other)) for other in others[:2])
        case m.Call():
            for i, arg in enumerate(node.args):
                for words, other in nodes(arg, program):
                    yield words, evolve(node, args=(*node.args[:i], other, *node.args[i + 1 :]))
            if len(node.args) == 2 and node.op in ("sub", "div", "add", "mul"):
                yield f"operands of `{node.op}` exchanged", evolve(node, args=node.args[::-1])
        case m.Select():
            yield "choices exchanged", evolve(node, then=node.other, other=node.then)
        case m.Let():
            for words, other in nodes(node.body, program):
                yield words, evolve(node, body=other)
            for i, (name, value) in enumerate(node.bindings):
                for words, other in nodes(value, program):
                    bindings = (*node.bindings[:i], (name, other), *node.bindings[i + 1 :])
                    yield words, evolve(node, bindings=bindings)


def _locals(node: m.Local | m.Read, program: p.Program) -> Iterator[tuple[str, m.Read]]:
    """Two other values of the same shape, and of the same type where there are."""
    shapes = {ref: (view.shape, program.buffers[view.buffer].dtype) for ref, view in program.views.items()}
    mine = (
        {ref for ref in shapes if ref == node.ref}
        if isinstance(node, m.Read)
        else {ref for ref in shapes if isinstance(ref, p.ValueRef) and ref.name == node.name}
    )
    own = next((shapes[ref] for ref in shapes if ref in mine), None)
    if own is None:
        return
    others = [
        ref
        for ref, shape in shapes.items()
        if shape == own and ref not in mine and not isinstance(ref, p.SmallWeightRef)
    ]
    yield from ((ref.label, m.Read(ref, node.type, node.span)) for ref in others[:2])
