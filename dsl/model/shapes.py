"""Axis lengths as polynomials in size names: equal numbers under different names do not match."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import reduce

from attrs import field, frozen

from ..text.syntax import Expr


@frozen(order=True)
class Atom:
    """A size's name, or the text of an expression that is opaque to algebra (`expr` says how to evaluate it)."""

    name: str
    expr: Expr | None = field(default=None, eq=False, order=False)


@frozen(cache_hash=True)
class Poly:
    """A sum of `coefficient * atom * atom …`, in canonical order."""

    terms: tuple[tuple[tuple[Atom, ...], Fraction], ...] = ()

    @staticmethod
    def of(value: int | Fraction | str | Atom) -> Poly:
        """A constant, or one atom."""
        if isinstance(value, str):
            value = Atom(value)
        if isinstance(value, Atom):
            return Poly((((value,), Fraction(1)),))
        return _canonical({(): Fraction(value)})

    def __add__(self, other: Poly) -> Poly:
        total = dict(self.terms)
        for monomial, factor in other.terms:
            total[monomial] = total.get(monomial, Fraction(0)) + factor
        return _canonical(total)

    def __mul__(self, other: Poly) -> Poly:
        total: dict[tuple[Atom, ...], Fraction] = {}
        for left, a in self.terms:
            for right, b in other.terms:
                monomial = tuple(sorted(left + right))
                total[monomial] = total.get(monomial, Fraction(0)) + a * b
        return _canonical(total)

    def __neg__(self) -> Poly:
        return self * Poly.of(-1)

    def __sub__(self, other: Poly) -> Poly:
        return self + -other

    def divided_by(self, other: Poly) -> Poly | None:
        """The exact quotient by a polynomial of one term; `None` where a term does not divide."""
        if len(other.terms) != 1:
            return Poly.of(1) if self == other and other.terms else None
        (divisor, factor), total = other.terms[0], {}
        for monomial, value in self.terms:
            rest = list(monomial)
            for atom in divisor:
                if atom not in rest:
                    return None
                rest.remove(atom)
            total[tuple(rest)] = value / factor
        return _canonical(total)

    @property
    def atoms(self) -> frozenset[Atom]:
        """All that take part."""
        return frozenset(atom for monomial, _ in self.terms for atom in monomial)

    def evaluate(self, value: Callable[[Atom], int | Fraction]) -> Fraction:
        """Its number, given those of its atoms."""
        total: int | Fraction = 0
        for monomial, factor in self.terms:
            term: int | Fraction = factor.numerator if factor.denominator == 1 else factor
            for atom in monomial:
                term *= value(atom)
            total += term
        return Fraction(total)

    def __str__(self) -> str:
        terms: list[str] = []
        for monomial, factor in self.terms:
            names = [a.name if a.expr is None else f"({a.name})" for a in monomial]
            if factor != 1 or not names:
                names.insert(0, str(abs(factor)) if terms else str(factor))
            terms.append(("- " if terms and factor < 0 else "+ " if terms else "") + " * ".join(names))
        return " ".join(terms) or "0"


def _canonical(total: dict[tuple[Atom, ...], Fraction]) -> Poly:
    nonzero = [(m, f) for m, f in total.items() if f]
    # Longer products first, then by name, constants last: the way people write them.
    return Poly(tuple(sorted(nonzero, key=lambda t: (-len(t[0]), t[0]))))


type Shape = tuple[Poly, ...]


def product(shape: Shape) -> Poly:
    """The number of elements."""
    return reduce(Poly.__mul__, shape, Poly.of(1))


def show(shape: Shape) -> str:
    """`[heads, key]`; a scalar is `[]`."""
    return f"[{', '.join(map(str, shape))}]"
