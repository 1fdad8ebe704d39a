"""Expressions to typed nodes: names resolved, functions expanded, shapes inferred."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve

from ..diagnostics import Label, did_you_mean
from ..text import syntax as s
from . import ir as m
from . import ops
from .calls import types_of
from .ir import Node, Type
from .scope import Scope, Stop
from .shapes import Poly
from .static import polynomial

_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">=", "in", "and", "or"})
_WHOLE = Type("int32")
MOST_EXPANSIONS = 4096


def node(expr: s.Expr, scope: Scope) -> Node:
    """A typed node; reports and raises `Stop` where there is none."""
    match expr:
        case s.Number():
            return m.Static(expr, frozenset(), expr.span)
        case s.Paren():
            inner = node(expr.inner, scope)
            return evolve(inner, expr=s.Paren(expr.span, inner.expr)) if isinstance(inner, m.Static) else inner
        case s.Name():
            return scope.look_up(expr)
        case s.Unary():
            return _unary(expr, scope)
        case s.Binary():
            return _binary(expr, scope)
        case s.When():
            return _when(expr, scope)
        case s.Index():
            return _index(expr, scope)
        case s.Call():
            return _call(expr, scope)
    raise scope.report("E106", "this is not allowed here", expr.span)


def static(expr: s.Expr, scope: Scope, what: str) -> m.Static:
    """As `node`, for what must be known before the model runs."""
    resolved = node(expr, scope)
    if isinstance(resolved, m.Static):
        return resolved
    raise scope.report(
        "E110",
        f"{what} must be known before the model runs",
        expr.span,
        notes=("it may use sizes, constants, lists, `layer` and `row`",),
    )


def _unary(expr: s.Unary, scope: Scope) -> Node:
    inner = node(expr.operand, scope)
    if isinstance(inner, m.Static):
        return m.Static(s.Unary(expr.span, expr.op, inner.expr), inner.depends, expr.span)
    if expr.op == "not":
        raise _not_static(expr, scope)
    return _apply("neg", (inner,), {}, expr, scope)


def _binary(expr: s.Binary, scope: Scope) -> Node:
    left, right = node(expr.left, scope), node(expr.right, scope)
    if isinstance(left, m.Static) and isinstance(right, m.Static) and expr.op != "@":
        joined = s.Binary(expr.span, expr.op, left.expr, right.expr)
        return m.Static(joined, left.depends | right.depends, expr.span)
    if expr.op in _COMPARISONS:
        raise _not_static(expr, scope)
    if expr.op not in ops.OPERATORS:
        raise scope.report("E105", f"`{expr.op}` is for sizes only", expr.span)
    return _apply(ops.OPERATORS[expr.op], (left, right), {}, expr, scope)


def _not_static(expr: s.Unary | s.Binary, scope: Scope) -> Stop:
    return scope.report(
        "E110",
        "a condition must be known before the model runs",
        expr.span,
        notes=("it may use sizes, constants, lists, `layer` and `row`",),
    )


def _when(expr: s.When, scope: Scope) -> Node:
    condition = static(expr.condition, scope, "a condition")
    if expr.other is None:
        raise scope.report("E110", "a conditional value needs `else` here", expr.span)
    then, other = node(expr.value, scope), node(expr.other, scope)
    if isinstance(then, m.Static) and isinstance(other, m.Static):
        joined = s.When(expr.span, then.expr, condition.expr, other.expr)
        return m.Static(joined, then.depends | condition.depends | other.depends, expr.span)
    if isinstance(then, m.Static):
        then = evolve(then, type=Type(other.type.dtype))
    if isinstance(other, m.Static):
        other = evolve(other, type=Type(then.type.dtype))
    for choice in (then, other):
        _single(choice, scope)
    numbers = {then.type.dtype, other.type.dtype} <= {"bf16", "f32"}
    if then.type.shape != other.type.shape or not (numbers or then.type == other.type):
        raise scope.report(
            "E107",
            f"the two branches have different types: {then.type} and {other.type}",
            expr.span,
            others=(Label(then.span, str(then.type)), Label(other.span, str(other.type))),
        )
    joined_type = Type("f32", then.type.shape) if numbers else then.type
    return m.Select(condition, then, other, joined_type, expr.span)


def _index(expr: s.Index, scope: Scope) -> Node:
    base = node(expr.base, scope)
    if isinstance(expr.index, s.Range):
        if not isinstance(base, m.StateRef) or not base.type.shape:
            raise scope.report("E107", "only a buffer has a range of elements", expr.base.span)
        start = static(expr.index.start, scope, "a range")
        length = base.type.shape[0]
        if expr.index.stop is None:
            stop = m.Static(s.Name(expr.index.span, str(length)), frozenset(), expr.index.span)
        else:
            stop = static(expr.index.stop, scope, "a range")
        return m.Slice(base, start, stop, base.type, expr.span)
    at = node(expr.index, scope)
    if isinstance(at, m.Static):
        at = evolve(at, type=_WHOLE)
    return _apply("index", (base, at), {}, expr, scope)


def _call(expr: s.Call, scope: Scope) -> Node:
    name = expr.function.text
    if name == "count" and len(expr.arguments) == 1 and not expr.keywords:
        inner = static(expr.arguments[0], scope, "a list")
        return m.Static(evolve(expr, arguments=(inner.expr,)), inner.depends, expr.span)
    if name == "experts":
        return _experts(expr, scope)
    if expr.body is not None:
        raise scope.report("E106", f"`{name}` takes no body", expr.body.span)
    if name in scope.world.functions:
        return _expand(scope.world.functions[name], expr, scope)
    op = ops.find(name)
    if op is None or name in ops.HIDDEN:
        if name in scope.world.damaged:
            raise Stop
        helps = did_you_mean(name, {*ops.known(), *scope.world.functions, "experts", "count"})
        fault = ops.fault(name)
        raise scope.report(
            "E105",
            f"unknown op or function `{name}`",
            expr.function.span,
            notes=() if fault is None else (fault,),
            helps=helps,
        )
    if not ops.is_computed(name):
        raise scope.report(
            "E105",
            f"nothing computes `{name}`",
            expr.function.span,
            notes=(f"a package has its row in `{ops.GROUP}`, and none a function for it in `{ops.REFERENCE}`",),
        )
    return _operands(op, expr, scope)


def _operands(op: ops.Op, expr: s.Call, scope: Scope) -> Node:
    count = len(op.parameters)
    values, extra = expr.arguments[:count], expr.arguments[count:]
    if len(values) < count:
        missing = ", ".join(f"`{p}`" for p in op.parameters[len(values) :])
        raise scope.report("E106", f"`{op.name}` lacks {missing}", expr.span, notes=(f"it is {op.signature}",))
    if len(extra) > len(op.scalars) and not op.repeats:
        raise scope.report(
            "E106",
            f"`{op.name}` takes at most {count + len(op.scalars)} arguments",
            extra[len(op.scalars)].span,
            notes=(f"it is {op.signature}",),
        )
    given: dict[str, list[m.Static]] = {}
    for i, value in enumerate(extra):
        name = op.scalars[min(i, len(op.scalars) - 1)]
        given.setdefault(name, []).append(static(value, scope, f"`{name}`"))
    for keyword in expr.keywords:
        name = keyword.name.text
        if name not in op.scalars or name in given:
            what = f"`{op.name}` is given `{name}` twice" if name in given else f"`{op.name}` has no `{name}`"
            raise scope.report(
                "E106", what, keyword.span, notes=(f"it is {op.signature}",), helps=did_you_mean(name, op.scalars)
            )
        given[name] = [static(keyword.value, scope, f"`{name}`")]
    for name in op.scalars:
        if name not in given:
            default = op.defaults.get(name)
            if default is not None:
                given[name] = [m.Static(s.Number(expr.span, default, str(default)), frozenset(), expr.span)]
            elif name not in op.defaults:
                raise scope.report("E106", f"`{op.name}` lacks `{name}`", expr.span, notes=(f"it is {op.signature}",))
    return _apply(op.name, tuple(node(v, scope) for v in values), given, expr, scope)


def _apply(name: str, args: tuple[Node, ...], given: dict[str, list[m.Static]], expr: s.Expr, scope: Scope) -> Node:
    op = ops.find(name)
    assert op is not None
    for arg in args:
        _single(arg, scope)
    scalars = {key: tuple(polynomial(v.expr) for v in values) for key, values in given.items()}
    operands = ops.Operands(dict(zip(op.parameters, (a.type for a in args), strict=True)), scalars)
    for parameter, arg in zip(op.parameters, args, strict=True):
        if isinstance(arg, m.Slice) and name in ops.table and parameter != "banks":
            raise scope.report("E116", "only `mix` takes a range of elements", arg.span)
        if (parameter in op.updates | op.caches) != isinstance(arg, m.StateRef):
            stored = parameter in op.updates | op.caches
            kind = "cache" if parameter in op.caches else "state"
            if stored or scope.world.states[arg.name].kind != "buffer":  # type: ignore[union-attr]
                wrong = f"must be a {kind}" if stored else "is a state, which only the op that owns it can read"
                what = f"`{parameter}` of `{name}`" if name not in ops.HIDDEN else f"`{arg.name}`"  # type: ignore[union-attr]
                raise scope.report("E116", f"{what} {wrong}", arg.span)
        elif parameter in op.updates | op.caches and isinstance(arg, m.StateRef):
            wanted = "cache" if parameter in op.caches else "state"
            if scope.world.states[arg.name].kind != wanted:
                raise scope.report("E116", f"`{parameter}` of `{name}` must be a {wanted}", arg.span)
    types = types_of(op, operands, args, expr, scope)
    options = tuple((key, value) for key, values in given.items() for value in values)
    return m.Call(name, args, options, types, expr.span)


def _single(operand: Node, scope: Scope) -> Node:
    """An operand, which is one value: ops with several results only set names."""
    inner = operand
    while isinstance(inner, m.Let):
        inner = inner.body
    if isinstance(inner, m.Call) and len(inner.types) > 1:
        raise scope.report(
            "E109",
            f"`{inner.op}` gives {len(inner.types)} values; one can stand here",
            operand.span,
            helps=(f"name them in a line of their own: `a, b = {inner.op}(…)`",),
        )
    return operand


def _expand(function: s.Function, expr: s.Call, scope: Scope) -> Node:
    name, parameters = function.name.text, function.parameters
    if any(name == called for called, _ in scope.calls):
        raise scope.report("E118", f"`{name}` calls itself", expr.span, others=(Label(function.span, "defined here"),))
    scope.world.expanded += 1
    if scope.world.expanded == MOST_EXPANSIONS:
        raise scope.report(
            "E118",
            f"functions are expanded more than {MOST_EXPANSIONS} times",
            scope.calls[0][1] if scope.calls else expr.span,
            notes=("each call is written out, so calls within calls multiply",),
        )
    if scope.world.expanded > MOST_EXPANSIONS:
        raise Stop
    if len(scope.calls) > 64:
        raise scope.report("E118", "functions are nested too deeply", expr.span)
    if len(expr.arguments) != len(parameters) or expr.keywords:
        raise scope.report(
            "E106",
            f"`{name}` takes {len(parameters)} arguments",
            expr.span,
            others=(Label(function.span, "defined here"),),
        )
    bound: dict[str, Node | None] = {}
    bindings = []
    for parameter, argument in zip(parameters, expr.arguments, strict=True):
        value = _single(node(argument, scope), scope)
        if isinstance(value, m.Static | m.Local | m.Input):
            bound[parameter.text] = value
        else:
            fresh = scope.fresh(parameter.text)
            bindings.append((fresh, value))
            bound[parameter.text] = m.Local(fresh, value.type, parameter.span)
    body = node(function.body, scope.for_function(function, expr.span, bound))
    return m.Let(tuple(bindings), body, expr.span) if bindings else body


def _experts(expr: s.Call, scope: Scope) -> Node:
    if expr.body is None or len(expr.arguments) != 2 or expr.keywords:
        raise scope.report(
            "E106",
            "`experts` takes a value, the routes and a body",
            expr.span,
            helps=("write `experts(z, chosen) { e -> down[e] @ silu(gate[e] @ z) }`",),
        )
    operand, routes = (node(a, scope) for a in expr.arguments)
    if routes.type.dtype != "routes":
        raise scope.report("E107", f"the second operand of `experts` must be routes, not {routes.type}", routes.span)
    parameter = scope.fresh(expr.body.parameter.text)
    inner = scope.inner(**{expr.body.parameter.text: m.Local(parameter, _WHOLE, expr.body.parameter.span)})
    body = node(expr.body.body, inner)
    if body.type.dtype not in ("f32", "bf16"):
        raise scope.report("E107", f"experts add up numbers, not {body.type}", body.span)
    _check_experts(body, parameter, routes.type.shape[0], scope)
    return m.Experts(operand, routes, parameter, body, Type("f32", body.type.shape), expr.span)


def _check_experts(body: Node, parameter: str, experts: Poly, scope: Scope) -> None:
    for call in walk(body):
        if isinstance(call, m.Call) and call.op == "index" and isinstance(call.args[1], m.Local):
            table = call.args[0]
            if call.args[1].name == parameter and table.type.shape[0] != experts:
                raise scope.report(
                    "E107", f"the routes choose among {experts}, this table has {table.type.shape[0]}", call.span
                )


def children(root: Node) -> tuple[Node, ...]:
    """The nodes right below one, in the order of the text."""
    below = _BELOW.get(type(root))
    return () if below is None else below(root)


# By a node's class: this is asked of each node many times over.
_BELOW: dict[type, Callable[[Any], tuple[Node, ...]]] = {
    m.Call: lambda call: call.args,
    m.Select: lambda select: (select.then, select.other),
    m.Let: lambda let: (*(value for _, value in let.bindings), let.body),
    m.Experts: lambda experts: (experts.operand, experts.routes, experts.body),
    m.Slice: lambda part: (part.base,),
}


def walk(root: Node) -> list[Node]:
    """A node and all below it, outermost first."""
    nodes, pending = [], [root]
    while pending:
        item = pending.pop()
        nodes.append(item)
        below = _BELOW.get(type(item))
        if below is not None:
            pending.extend(reversed(below(item)))
    return nodes
