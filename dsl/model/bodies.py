"""Bodies of parts and steps: statements to typed statements."""

from __future__ import annotations

from attrs import evolve

from ..diagnostics import Label, did_you_mean
from ..source import Span
from ..text import syntax as s
from . import ir as m
from . import ops
from .expressions import node, static, walk
from .ir import Node, Type
from .scope import RESERVED, Scope, Stop


def named_type(value: Node, type_: Type) -> Type:
    """What a value is rounded to where it is named: f32 only if it was written `f32(…)`."""
    if type_.dtype in ("int32", "routes"):
        return type_
    return Type("f32" if _is_f32(value) else "bf16", type_.shape)


def _is_f32(value: Node) -> bool:
    match value:
        case m.Call():
            return value.op == "f32"
        case m.Let():
            return _is_f32(value.body)
        case m.Select():
            return _is_f32(value.then) and _is_f32(value.other)
    return False


def part(declared: s.Part, scope: Scope) -> m.Part:
    """A part's statements; `scope.known` holds the carried values."""
    statements = [item for item in declared.items if isinstance(item, s.Assign | s.Run | s.For)]
    carried = {name: v.type for name, v in scope.known.items() if isinstance(v, m.Local)}
    assigned: dict[str, Span] = {}
    scope.later = {
        t.text: t.span for a in statements if isinstance(a, s.Assign) for t in a.targets if isinstance(t, s.Name)
    }
    body: list[m.Statement] = []
    for statement in statements:
        if isinstance(statement, s.For):
            try:
                body.append(_rows(statement, scope, assigned))
            except Stop:
                continue
        elif isinstance(statement, s.Assign):
            unguarded = _guarded(statement, scope, carried, assigned)
            if unguarded is not None:
                body.append(unguarded)
        else:
            scope.report(
                "E115",
                "a part holds assignments and loops over `row`",
                statement.span,
                helps=("parts are run by a `step`",),
            )
    _check_states(tuple(each for each in body if isinstance(each, m.Assign | m.Write)), scope)
    return m.Part(declared.name.text, tuple(body), declared.name.span)


def _guarded(
    statement: s.Assign, scope: Scope, carried: dict[str, Type], assigned: dict[str, Span]
) -> m.Assign | m.Write | None:
    """One assignment; where it fails its names are marked, so that nothing is said about their uses."""
    try:
        return assign(statement, scope, carried, assigned)
    except Stop:
        for target in statement.targets:
            if isinstance(target, s.Name) and target.text not in carried:
                scope.known[target.text] = None
                assigned.setdefault(target.text, target.span)
        return None


def assign(
    statement: s.Assign, scope: Scope, carried: dict[str, Type], assigned: dict[str, Span]
) -> m.Assign | m.Write:
    """A value named, or written to a cache or buffer."""
    value_text, guard = statement.value, None
    if isinstance(value_text, s.When) and value_text.other is None:
        guard = static(value_text.condition, scope, "a condition")
        value_text = value_text.value
    value = node(value_text, scope)
    if isinstance(value, m.Slice) or (
        isinstance(value, m.StateRef) and scope.world.states[value.name].kind != "buffer"
    ):
        raise scope.report(
            "E116", f"this is read by {'`mix`' if isinstance(value, m.Slice) else 'its op'} only", value_text.span
        )
    if isinstance(statement.targets[0], s.Index):
        return _write(statement, value, guard, scope)
    types = value.types if isinstance(value, m.Call) else (value.type,)
    if len(types) != len(statement.targets):
        raise scope.report(
            "E109", f"{len(types)} value{'s' * (len(types) > 1)} for {len(statement.targets)} names", statement.span
        )
    names = []
    for target in statement.targets:
        if not isinstance(target, s.Name):
            raise scope.report("E109", "a cache or buffer is written alone", target.span)
        names.append(target)
    rounded = tuple(named_type(value, t) for t in types)
    for target, type_ in zip(names, rounded, strict=True):
        _check_name(target, type_, scope, carried, assigned)
        if guard is not None and target.text not in carried:
            raise scope.report(
                "E110",
                f"`{target.text}` has no value where the condition is false",
                guard.span,
                helps=("write `… when … else …`",),
            )
    for target, type_ in zip(names, rounded, strict=True):
        scope.known[target.text] = m.Local(target.text, type_, target.span)
        assigned.setdefault(target.text, target.span)
    return m.Assign(tuple(t.text for t in names), value, rounded, guard, statement.span)


def _check_name(target: s.Name, type_: Type, scope: Scope, carried: dict[str, Type], assigned: dict[str, Span]) -> None:
    text, world = target.text, scope.world
    if text in carried:
        if carried[text] != type_:
            raise scope.report(
                "E108",
                f"`{text}` is carried as {carried[text]}; this is {type_}",
                target.span,
                notes=("a carried name keeps its type in every part",),
            )
        return
    if text in assigned:
        raise scope.report(
            "E103",
            f"`{text}` is assigned twice",
            target.span,
            others=(Label(assigned[text], "first here"),),
            notes=("only names that a step sets before its loop may be assigned again",),
        )
    if text in RESERVED:
        raise scope.report("E102", f"`{text}` is a reserved name and cannot be assigned", target.span)
    for key in (f"{scope.part}.{text}", text):
        if key in world.declared_at and key not in world.functions:
            raise scope.report(
                "E102", f"`{text}` is declared already", target.span, others=(Label(world.declared_at[key], "here"),)
            )


def _write(statement: s.Assign, value: Node, guard: m.Static | None, scope: Scope) -> m.Write:
    target = statement.targets[0]
    assert isinstance(target, s.Index)
    if len(statement.targets) > 1:
        raise scope.report("E109", "a cache or buffer is written alone", statement.span)
    base = node(target.base, scope)
    if not isinstance(base, m.StateRef):
        raise scope.report("E116", f"`{target.base.span.text}` is not a cache or buffer", target.base.span)
    state = scope.world.states[base.name]
    if state.kind == "state":
        raise scope.report("E116", f"`{base.name}` is a state: the op that it is passed to writes it", target.span)
    if isinstance(target.index, s.Range):
        raise scope.report("E116", "one element is written at a time", target.index.span)
    at = node(target.index, scope)
    if state.kind == "cache":
        if not (isinstance(at, m.Input) and at.name == "position"):
            raise scope.report("E116", "a cache is written at `position`", target.index.span)
        entry = state.type.shape
    else:
        if not isinstance(at, m.Static):
            raise scope.report("E110", "a buffer's element must be known before the model runs", target.index.span)
        at, entry = evolve(at, type=Type("int32")), state.type.shape[1:]
    if value.type.shape != entry:
        raise scope.report(
            "E107",
            f"`{base.name}` takes {Type(state.type.dtype, entry)}, this is {value.type}",
            statement.span,
            others=(Label(state.span, "declared here"),),
        )
    return m.Write(base.name, at, value, guard, statement.span)


def _check_states(body: tuple[m.Assign | m.Write, ...], scope: Scope) -> None:
    """A state is written once a pass; a cache's entry before it is read."""
    written: dict[str, Span] = {}
    writes = {w.state: w for w in body if isinstance(w, m.Write)}
    for statement in body:
        for call in walk(statement.value):
            if not isinstance(call, m.Call) or (op := ops.find(call.op)) is None:
                continue
            for parameter, arg in zip(op.parameters, call.args, strict=True):
                if not isinstance(arg, m.StateRef):
                    continue
                if parameter in op.updates:
                    _once(arg.name, arg.span, written, scope)
                elif parameter in op.caches and op.name != "attend_block":
                    write = writes.get(arg.name)
                    if write is not None and arg.name not in written:
                        scope.report(
                            "E119",
                            f"`{arg.name}` is read before this position's entry is written",
                            arg.span,
                            others=(Label(write.span, "written here"),),
                        )
        if isinstance(statement, m.Write) and statement.guard is None:
            _once(statement.state, statement.span, written, scope)


def _once(name: str, span: Span, written: dict[str, Span], scope: Scope) -> None:
    if name in written and scope.world.states[name].kind != "buffer":
        others = (Label(written[name], "first here"),)
        scope.report("E116", f"`{name}` is written twice in one pass", span, others=others)
    written.setdefault(name, span)


def step(declared: s.Step, scope: Scope, parts: dict[str, s.Part]) -> tuple[m.Step, dict[str, Node | None]]:
    """A step's statements, and the values that its layers carry."""
    carried: dict[str, Type] = {}
    assigned: dict[str, Span] = {}
    at_loop: dict[str, Node | None] = {}
    body: list[m.Statement] = []
    for statement in declared.body:
        try:
            if isinstance(statement, s.For):
                if statement.variable.text == "layer":
                    for first in body:
                        if isinstance(first, m.Loop) and first.variable == "layer":
                            raise scope.report(
                                "E115",
                                "a step has one loop over its layers",
                                statement.span,
                                others=(Label(first.span, "first here"),),
                            )
                    at_loop = dict(scope.known)
                    body.append(_layers(statement, scope, parts))
                else:
                    body.append(_rows(statement, scope, assigned))
            elif isinstance(statement, s.Run):
                raise scope.report("E115", "a part runs inside `for layer in …`", statement.span)
            else:
                unguarded = _guarded(statement, scope, carried, assigned)
                if unguarded is not None:
                    body.append(unguarded)
        except Stop:
            continue
    name = "" if declared.name is None else declared.name.text
    outputs = tuple(o.text for o in declared.outputs)
    if declared.name is None:
        outputs = outputs or ("logits",)
    if declared.name is None:
        _logits(scope, declared)
    for i, written in enumerate(declared.outputs):
        if written.text in outputs[:i]:
            scope.report("E102", f"the step gives `{written.text}` twice", written.span)
    for output in outputs:
        if output not in scope.known and output not in scope.world.damaged:
            scope.report("E120", f"the step does not assign `{output}`", declared.head)
    block = None if declared.block is None else declared.block.text
    return m.Step(name, block, outputs, tuple(body), _types(scope), span=declared.head), at_loop


def _logits(scope: Scope, declared: s.Step) -> None:
    """What a token is chosen from is a vector of numbers."""
    logits = scope.known.get("logits")
    if isinstance(logits, m.Local) and (len(logits.type.shape) != 1 or logits.type.dtype not in ("f32", "bf16")):
        scope.report(
            "E120",
            f"`logits` is one number for each token of the vocabulary, not {logits.type}",
            logits.span,
            others=(Label(declared.head, "what this step gives"),),
        )


def _types(scope: Scope) -> dict[str, Type]:
    return {name: v.type for name, v in scope.known.items() if isinstance(v, m.Local)}


def _layers(loop: s.For, scope: Scope, parts: dict[str, s.Part]) -> m.Loop:
    inner = evolve(scope, inputs=scope.inputs | {"layer"})
    start, stop = _bounds(loop, scope)
    runs: list[m.Statement] = []
    for run in loop.body:
        if not isinstance(run, s.Run):
            scope.report("E115", "a loop over layers runs parts only", run.span)
            continue
        for name in (run.part, run.other):
            if name is not None and name.text not in parts and name.text not in scope.world.damaged:
                scope.report("E115", f"unknown part `{name.text}`", name.span, helps=did_you_mean(name.text, parts))
        try:
            condition = None if run.condition is None else static(run.condition, inner, "a condition")
        except Stop:
            continue
        other = None if run.other is None else run.other.text
        runs.append(m.Run(run.part.text, condition, other, run.span))
    return m.Loop("layer", start, stop, tuple(runs), loop.span)


def _rows(loop: s.For, scope: Scope, assigned: dict[str, Span]) -> m.Loop:
    if loop.variable.text != "row" or "row" not in scope.inputs:
        over = (
            "a step loops over `layer`, and, `on` a block, over `row`"
            if scope.part is None
            else ("a part loops over `row`, where its step is `on` a block")
        )
        raise scope.report("E115", over, loop.variable.span)
    start, stop = _bounds(loop, scope)
    carried = _types(scope)
    body: list[m.Statement] = []
    for statement in loop.body:
        if not isinstance(statement, s.Assign):
            scope.report("E115", "a loop over rows holds assignments only", statement.span)
            continue
        unguarded = _guarded(statement, scope, carried, assigned)
        if unguarded is not None:
            body.append(unguarded)
    return m.Loop("row", start, stop, tuple(body), loop.span)


def _bounds(loop: s.For, scope: Scope) -> tuple[m.Static, m.Static]:
    assert loop.range.stop is not None
    return static(loop.range.start, scope, "a bound"), static(loop.range.stop, scope, "a bound")
