"""A model's syntax to the Model: declarations, then steps, then the parts that their layers run."""

from __future__ import annotations

from attrs import evolve

from ..diagnostics import Label, Sink, did_you_mean
from ..text import syntax as s
from . import bodies, declarations
from . import ir as m
from .expressions import walk
from .facts import STEP
from .ir import Node, Type
from .scope import Scope, World
from .shapes import Atom, Poly


def resolve(declared: s.Model, targets: dict[str, m.Model], damaged: frozenset[str], sink: Sink) -> m.Model:
    """The Model, as far as it goes; what is wrong goes to `sink`. `targets` are the models it may draft."""
    world = World(sink, damaged, declared)
    top = Scope(world, None, inputs=frozenset({"token", "position"}))
    parts: dict[str, s.Part] = {}
    for item in declared.items:
        match item:
            case s.Size():
                declarations.size(item, world)
            case s.ListDecl():
                declarations.layer_list(item, world)
            case s.Function():
                declarations.parameters(item, world)
                if world.declare(item.name, "function"):
                    world.functions[item.name.text] = item
            case s.Part():
                _part(item, parts, sink)
    declarations.check_values(world)
    _stored(declared, top, parts)
    target = _target(declared, targets, world)
    for item in declared.items:
        if isinstance(item, s.Taps):
            _taps(item, target, world)
    steps, resolved = _steps(declared, top, parts)
    declarations.check_aliases(world)
    if not sink.failed:
        _caches(resolved, world)
        _never_run(parts, resolved, world)
        declarations.unused(world)
    requires = tuple(
        m.Require(r.key.text, r.value, r.or_absent, r.span) for r in declared.items if isinstance(r, s.Require)
    )
    ignores = declarations.ignores(declared, world)
    return m.Model(
        declared.name.text,
        target,
        world.sizes,
        world.lists,
        requires,
        ignores,
        world.weights,
        world.states,
        world.taps,
        resolved,
        steps,
        declared.name.span,
    )


def _part(item: s.Part, parts: dict[str, s.Part], sink: Sink) -> None:
    """A part by its name, which no other has."""
    name = item.name
    if name.text == STEP:
        message = f"`{STEP}` is a reserved name and cannot be a part"
        sink.report("E102", message, name.span, notes=("schedules mean the step by it",))
    if name.text in parts:
        first = Label(parts[name.text].name.span, "first here")
        sink.report("E102", f"part `{name.text}` is declared twice", name.span, others=(first,))
    else:
        parts[name.text] = item


def _stored(declared: s.Model, top: Scope, parts: dict[str, s.Part]) -> None:
    """Weights and states of the model, then of its parts, so that parts see each other's."""
    for owner, items in [(None, declared.items), *((p.name.text, p.items) for p in parts.values())]:
        scope = evolve(top, part=owner)
        for item in items:
            if isinstance(item, s.Weights):
                declarations.weights(item, scope)
            elif isinstance(item, s.States):
                declarations.states(item, scope)


def _target(declared: s.Model, targets: dict[str, m.Model], world: World) -> m.Model | None:
    if declared.drafts is None:
        return None
    name = declared.drafts.text
    if name not in targets and name not in world.damaged:
        world.sink.report(
            "E122",
            f"unknown model `{name}`",
            declared.drafts.span,
            helps=did_you_mean(name, targets) or (f'`use "{name}.mks"` brings it in',),
        )
    return targets.get(name)


def _taps(item: s.Taps, target: m.Model | None, world: World) -> None:
    if not world.declare(item.name, "taps"):
        return
    name, value = item.name.text, item.value.parts[-1]
    if target is None:
        world.damaged |= {name}
        return
    main = target.steps.get(m.DECODE)
    type_ = None if main is None else main.types.get(value)
    if item.value.parts[:-1] != (target.name,) or type_ is None:
        world.sink.report(
            "E101",
            f"unknown value `{item.value.text}` of the drafted model",
            item.value.span,
            helps=did_you_mean(value, main.types if main else ()),
        )
        world.damaged |= {name}
        return
    if item.before.text not in world.lists:
        world.sink.report(
            "E101",
            f"unknown list `{item.before.text}`",
            item.before.span,
            helps=did_you_mean(item.before.text, world.lists),
        )
        world.damaged |= {name}
        return
    count = s.Call(item.before.span, s.Name(item.before.span, "count"), (item.before,), (), None)
    axes = (Poly.of(Atom(f"count({item.before.text})", count)), *type_.shape)
    world.taps[name] = m.Taps(name, value, item.before.text, Type(type_.dtype, axes), item.span)


def _steps(declared: s.Model, top: Scope, parts: dict[str, s.Part]) -> tuple[dict[str, m.Step], dict[str, m.Part]]:
    steps: dict[str, m.Step] = {}
    resolved: dict[str, m.Part] = {}
    carried_by: dict[str, dict[str, Node | None]] = {}
    world = top.world
    written = [item for item in declared.items if isinstance(item, s.Step)]
    for item in written:
        name = "" if item.name is None else item.name.text
        if name in steps:
            shown = f"step `{name}`" if name else "the step"
            world.sink.report(
                "E102", f"{shown} is declared twice", item.head, others=(Label(steps[name].span, "first here"),)
            )
            continue
        if item.name is not None and (name == STEP or name in parts):
            problem = "is a part already" if name in parts else "is a reserved name"
            world.sink.report("E102", f"`{name}` {problem} and cannot be a step's name", item.head)
            continue
        if item.block is not None and item.block.text not in world.sizes and item.block.text not in world.damaged:
            world.sink.report(
                "E101",
                f"unknown size `{item.block.text}`",
                item.block.span,
                helps=did_you_mean(item.block.text, world.sizes),
            )
        inputs = top.inputs | ({"row"} if item.block is not None else set())
        steps[name], carried = bodies.step(item, evolve(top, known={}, inputs=inputs), parts)
        for run in _runs(steps[name]):
            if run not in parts:
                continue
            if run not in resolved:
                scope = evolve(top, part=run, known=dict(carried), inputs=inputs | {"layer"})
                resolved[run], carried_by[run] = bodies.part(parts[run], scope), carried
            else:
                _same_carried(resolved[run], carried_by[run], carried, item, world)
                if item.block is None and any(isinstance(each, m.Loop) for each in resolved[run].body):
                    world.sink.report(
                        "E115",
                        f"`{run}` loops over `row`; this step is not `on` a block",
                        item.head,
                        others=(Label(resolved[run].span, "declared here"),),
                    )
    if not written and not world.damaged:
        world.sink.report("E120", f"`{declared.name.text}` has no step", declared.name.span)
    return steps, resolved


def _never_run(parts: dict[str, s.Part], resolved: dict[str, m.Part], world: World) -> None:
    for name, part in parts.items():
        if name not in resolved:
            world.sink.report("W102", f"the part `{name}` never runs", part.name.span)
            world.used |= {n for n in (*world.weights, *world.states) if n.startswith(f"{name}.")}


def _caches(parts: dict[str, m.Part], world: World) -> None:
    """A cache that is read is written somewhere."""
    written = {w.state for part in parts.values() for w in part.body if isinstance(w, m.Write)}
    for name, state in world.states.items():
        if state.kind == "cache" and name in world.used and name not in written:
            world.sink.report(
                "E119",
                f"no part writes the cache `{name}`",
                state.span,
                helps=(f"`{name.split('.')[-1]}[position] = …` writes it",),
            )


def _runs(step: m.Step) -> list[str]:
    names: dict[str, None] = {}
    for loop in step.body:
        for run in loop.body if isinstance(loop, m.Loop) else ():
            if isinstance(run, m.Run):
                names.update(dict.fromkeys(n for n in (run.part, run.other) if n is not None))
    return list(names)


def _same_carried(
    part: m.Part, first: dict[str, Node | None], now: dict[str, Node | None], step: s.Step, world: World
) -> None:
    """A part that several steps run finds the same carried values in each."""
    inner = [each for statement in part.body if isinstance(statement, m.Loop) for each in statement.body]
    read = {
        n.name
        for statement in (*part.body, *inner)
        if isinstance(statement, m.Assign | m.Write)
        for n in walk(statement.value)
        if isinstance(n, m.Local)
    }
    for name in sorted(read & set(first)):
        mine, other = now.get(name), first[name]
        if isinstance(other, m.Local) and name not in now:
            world.sink.report("E108", f"part `{part.name}` reads `{name}`, which this step does not set", step.head)
        elif isinstance(other, m.Local) and isinstance(mine, m.Local) and mine.type != other.type:
            world.sink.report(
                "E108", f"part `{part.name}` reads `{name}` as {other.type}; this step sets {mine.type}", step.head
            )
