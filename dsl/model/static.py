"""Expressions over sizes, constants and lists: what is known before a model runs."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, Protocol

from ..source import Span
from ..text import syntax as s
from .shapes import Atom, Poly

type Value = int | float | bool | str | Fraction | tuple[int | float | str, ...]


class Env(Protocol):
    """Values by name."""

    def __contains__(self, name: object, /) -> bool: ...

    def __getitem__(self, name: str, /) -> Value: ...


_LARGEST = 1 << 128

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "%": operator.mod,
    "//": operator.floordiv,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda a, b: a in b,
    "and": lambda a, b: bool(a) and bool(b),
    "or": lambda a, b: bool(a) or bool(b),
}


_NUMERIC = frozenset(_BINARY) - {"==", "!=", "in", "and", "or"}


class StaticError(Exception):
    """An expression has no value; `span` is where, `unknown` a name that it lacks."""

    def __init__(self, message: str, span: Span, unknown: str | None = None) -> None:
        super().__init__(message)
        self.message, self.span, self.unknown = message, span, unknown


def evaluate(expr: s.Expr, env: Env) -> Value:
    """The value of an expression; integers stay integers and `/` is exact. Raises `StaticError`."""
    match expr:
        case s.Number():
            return expr.value
        case s.String():
            return expr.value
        case s.Paren():
            return evaluate(expr.inner, env)
        case s.Name():
            if expr.text in env:
                return env[expr.text]
            raise StaticError(f"`{expr.text}` has no value here", expr.span, expr.text)
        case s.Unary():
            value = evaluate(expr.operand, env)
            return not value if expr.op == "not" else -_number(value, expr.operand)
        case s.Binary():
            return _binary(expr, env)
        case s.When():
            taken = evaluate(expr.condition, env)
            if not taken and expr.other is None:
                raise StaticError("a conditional without `else` has no value", expr.span)
            return evaluate(expr.value if taken or expr.other is None else expr.other, env)
        case s.Call() if expr.function.text == "count" and len(expr.arguments) == 1:
            items = evaluate(expr.arguments[0], env)
            if not isinstance(items, tuple):
                raise StaticError("`count` takes a list", expr.arguments[0].span)
            return len(items)
    raise StaticError("this is not known before the model runs", expr.span)


def _binary(expr: s.Binary, env: Env) -> Value:
    left, right = evaluate(expr.left, env), evaluate(expr.right, env)
    try:
        if expr.op == "/":
            return _divide(_number(left, expr.left), _number(right, expr.right))
        if expr.op == "**":
            return _power(_number(left, expr.left), _number(right, expr.right))
        if expr.op in _NUMERIC:
            left, right = _number(left, expr.left), _number(right, expr.right)
        value = _BINARY[expr.op](left, right)
    except (TypeError, KeyError):
        raise StaticError(f"`{expr.op}` does not take these operands", expr.span) from None
    except (ZeroDivisionError, OverflowError, ValueError) as e:
        raise StaticError(f"`{expr.op}` has no value here: {e}", expr.span) from None
    if isinstance(value, int | Fraction) and not -_LARGEST <= value <= _LARGEST:
        raise StaticError("this number is too large", expr.span)
    return value


def _divide(a: int | float | Fraction, b: int | float | Fraction) -> Value:
    return a / b if isinstance(a, float) or isinstance(b, float) else simplified(Fraction(a) / Fraction(b))


def _power(a: int | float | Fraction, b: int | float | Fraction) -> Value:
    if isinstance(a, int) and isinstance(b, int) and 0 <= b <= 128 and abs(a) < 1 << 64:
        return int(a**b)
    value = float(a) ** float(b)
    if isinstance(value, complex) or not math.isfinite(value):
        raise ValueError("not a finite real number")
    return value


def _number(value: Value, at: s.Expr) -> int | float | Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        raise StaticError("a number is needed here", at.span)
    return value


def simplified(value: Fraction) -> int | Fraction:
    """An integer where it is one."""
    return value.numerator if value.denominator == 1 else value


def names(expr: s.Expr) -> Iterator[s.Name]:
    """Every name that an expression reads."""
    match expr:
        case s.Name():
            yield expr
        case s.Paren():
            yield from names(expr.inner)
        case s.Unary():
            yield from names(expr.operand)
        case s.Binary():
            yield from names(expr.left)
            yield from names(expr.right)
        case s.When():
            for part in (expr.value, expr.condition, expr.other):
                if part is not None:
                    yield from names(part)
        case s.Call():
            for argument in expr.arguments:
                yield from names(argument)
        case s.Index():
            yield from names(expr.base)
            yield from names(expr.index)
        case s.Range():
            for part in (expr.start, expr.stop, expr.step):
                if part is not None:
                    yield from names(part)


def polynomial(expr: s.Expr) -> Poly:
    """An axis length as a polynomial; what algebra does not cover becomes one opaque atom."""
    match expr:
        case s.Paren():
            return polynomial(expr.inner)
        case s.Number() if isinstance(expr.value, int):
            return Poly.of(expr.value)
        case s.Name():
            return Poly.of(expr.text)
        case s.Unary(op="-"):
            return -polynomial(expr.operand)
        case s.Binary(op="+"):
            return polynomial(expr.left) + polynomial(expr.right)
        case s.Binary(op="-"):
            return polynomial(expr.left) - polynomial(expr.right)
        case s.Binary(op="*"):
            return polynomial(expr.left) * polynomial(expr.right)
    return Poly.of(Atom(" ".join(expr.span.text.split()), expr))
