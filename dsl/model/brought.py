"""Rows of ops that packages bring: what is wrong with one, and its functions, whose faults are theirs and not ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import evolve

from ..diagnostics import Diagnostic, MksError
from ..installed import kind_faults, number_faults, told
from .ir import Type
from .op import Bundles, Op
from .rules import Operands, RuleError
from .shapes import Poly

DTYPES = ("f32", "bf16", "int32", "routes")


def faults(op: Op) -> Iterator[str]:
    """What of a row cannot be right; each may rely on those before."""
    yield from _name_faults("`parameters`", op.parameters)
    yield from _name_faults("`scalars`", op.scalars)
    if both := sorted({*op.parameters} & {*op.scalars}):
        yield f"`{both[0]}` is a parameter and a scalar"
    for what in ("matrix", "updates", "caches"):
        yield from _part_faults(f"`{what}`", getattr(op, what), op.parameters)
    if both := sorted(op.updates & op.caches):
        yield f"`{both[0]}` is in `updates` and in `caches`"
    yield from kind_faults("`defaults`", op.defaults, Mapping)
    for name, value in op.defaults.items():
        if name not in op.scalars:
            yield f"`defaults` has {name!r}, which is no scalar"
        if value is not None:
            yield from number_faults(f"the default of `{name}`", value, signed=True)
    for what in ("repeats", "elementwise"):
        yield from kind_faults(f"`{what}`", getattr(op, what), bool)
    if op.repeats and not op.scalars:
        yield "`repeats` is set, and there is no scalar that can be given again"
    for what in ("rule", "along", "flops"):
        if not callable(getattr(op, what)):
            yield f"`{what}` is {getattr(op, what)!r}; it must be a function"
    yield from kind_faults("`summary`", op.summary, str)
    yield from kind_faults("`bundles`", op.bundles, Bundles)
    yield from number_faults("`bundles.once`", op.bundles.once)
    yield from number_faults("`bundles.register`", op.bundles.register)


def _name_faults(what: str, names: object) -> Iterator[str]:
    if not isinstance(names, tuple):
        yield f"{what} is {names!r}; it must be a tuple of names"
        return
    for i, name in enumerate(names):
        if not isinstance(name, str) or not name.isidentifier():
            yield f"{what} has {name!r}, which is no name"
        elif name in names[:i]:
            yield f"{what} has `{name}` twice"


def _part_faults(what: str, part: object, parameters: tuple[str, ...]) -> Iterator[str]:
    if not isinstance(part, frozenset | set):
        yield f"{what} is {part!r}; it must be a frozenset of parameters"
        return
    for name in part:
        if name not in parameters:
            yield f"{what} has {name!r}, which is no parameter"


def guarded(op: Op) -> Op:
    """The same row, whose functions raise `MksError` (E105) where they fail or give what is not meant."""

    def rule(operands: Operands) -> tuple[Type, ...]:
        types = _several(op.name, "rule", op.rule, operands)
        if not types or not all(_is_type(each) for each in types):
            raise _wrong(op.name, "rule", f"gives ({', '.join(map(str, types))}), not types of values")
        return types

    def along(operands: Operands) -> tuple[Poly, ...]:
        axes = _several(op.name, "along", op.along, operands)
        if not all(isinstance(each, Poly) for each in axes):
            raise _wrong(op.name, "along", f"gives {axes!r}, not lengths of axes (`Poly`)")
        return axes

    def flops(operands: Operands) -> Poly:
        count = _called(op.name, "flops", op.flops, operands)
        if not isinstance(count, Poly):
            raise _wrong(op.name, "flops", f"gives {count!r}, not a `Poly`")
        return count

    return evolve(op, rule=rule, along=along, flops=flops)


def _is_type(value: object) -> bool:
    if not isinstance(value, Type) or value.dtype not in DTYPES:
        return False
    return isinstance(value.shape, tuple) and all(isinstance(axis, Poly) for axis in value.shape)


def _several(op: str, what: str, function: Callable[[Operands], Any], operands: Operands) -> tuple[Any, ...]:
    return _called(op, what, lambda given: tuple(function(given)), operands)


def _called[T](op: str, what: str, function: Callable[[Operands], T], operands: Operands) -> T:
    try:
        return function(operands)
    except (Exception, SystemExit) as e:  # a package that is not ours: whatever it raises is its fault, and is said
        if what == "rule" and isinstance(e, RuleError):
            raise
        raise _wrong(op, what, f"fails: {told(e)}") from e


def _wrong(op: str, what: str, fault: str) -> MksError:
    shown = what if what == "rule" else f"`{what}`"
    return MksError([Diagnostic("E105", f"`{op}`'s {shown} {fault}")])
