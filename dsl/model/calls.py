"""What the functions of an op's row say of a call."""

from __future__ import annotations

from attrs import evolve

from ..diagnostics import Label, MksError
from ..text import syntax as s
from . import ir as m
from . import ops
from .ir import Node, Type
from .scope import Scope
from .shapes import Atom, Poly
from .static import polynomial


def operands_of(call: m.Call, op: ops.Op) -> ops.Operands:
    """What the functions of an op's row see of a call."""
    scalars: dict[str, tuple[Poly, ...]] = {}
    for name, static in call.options:
        scalars[name] = (*scalars.get(name, ()), polynomial(static.expr))
    return ops.Operands(dict(zip(op.parameters, (arg.type for arg in call.args), strict=True)), scalars, call.types)


def types_of(
    op: ops.Op, operands: ops.Operands, args: tuple[Node, ...], expr: s.Expr, scope: Scope
) -> tuple[Type, ...]:
    """Those of an op's values; what a package's row gives is looked at here, where the call can be shown."""
    try:
        types = op.rule(operands)
        if op.name not in ops.table:
            done = evolve(operands, results=types)
            axes = (*(axis for each in types for axis in each.shape), *op.along(done), op.flops(done))
            for atom in sorted({atom for axis in axes for atom in axis.atoms} - _atoms(operands)):
                if atom.expr is None and atom.name not in scope.world.sizes:
                    what = f"`{op.name}`'s row gives a length of `{atom.name}`, which is no size"
                    raise scope.report("E105", what, expr.span)
    except ops.RuleError as e:
        named = list(zip(op.parameters, args, strict=True))
        at = [(p, a) for p, a in named if p in e.operands] or [("", a) for a in args[:1]]
        raise scope.report(
            "E107", e.message, expr.span, others=tuple(Label(a.span, f"{p} : {a.type}") for p, a in at), notes=e.notes
        ) from None
    except MksError as e:
        (wrong,) = e.diagnostics
        raise scope.report(wrong.code, wrong.message, expr.span) from None
    return types


def _atoms(operands: ops.Operands) -> set[Atom]:
    lengths = [axis for type_ in operands.types.values() for axis in type_.shape]
    lengths += [length for several in operands.scalars.values() for length in several]
    return {atom for length in lengths for atom in length.atoms}
