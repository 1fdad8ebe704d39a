"""Values as terms: two are the same number where they are made of the same things by the same ops.

Sums, differences, products and quotients are kept multiplied out, as lists of signed products, because lowering takes
them apart where some of it is a partial sum. All else is an atom: a name, or an op with its operands. Equal terms have
equal numbers, so that to compare two is to compare two integers.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from attrs import field

from ...records import define

type Term = int
type Monomial = tuple[int, tuple[Term, ...]]  # sign, factors in the order of their numbers

_SUM = "sum"
# A product of sums that would have more parts stays a product.
_MOST = 256


@define
class Terms:
    """Numbers for terms; each is found again by what it is made of."""

    numbers: dict[tuple[Hashable, ...], Term] = field(factory=dict)
    made: list[tuple[Hashable, ...]] = field(factory=list)

    def atom(self, *key: Hashable) -> Term:
        """A name or an op; operands that are terms stand as their numbers."""
        found = self.numbers.get(key)
        if found is None:
            found = self.numbers[key] = len(self.made)
            self.made.append(key)
        return found

    def number(self, value: float) -> Term:
        """A number of the model."""
        return self.total([(1, ())]) if value == 1 else self.atom("number", float(value))

    def parts(self, term: Term) -> tuple[Monomial, ...]:
        """A term as a sum of signed products."""
        key = self.made[term]
        return key[1] if key[0] == _SUM else ((1, (term,)),)  # type: ignore[return-value]

    def total(self, parts: list[Monomial]) -> Term:
        if len(parts) == 1 and parts[0][0] == 1 and len(parts[0][1]) == 1:
            return parts[0][1][0]
        return self.atom(_SUM, tuple(sorted(parts)))

    def add(self, a: Term, b: Term, sign: int = 1) -> Term:
        """`a + b`, or with a sign of -1 `a - b`."""
        return self.total([*self.parts(a), *((sign * each, factors) for each, factors in self.parts(b))])

    def neg(self, a: Term) -> Term:
        """`-a`."""
        return self.total([(-sign, factors) for sign, factors in self.parts(a)])

    def mul(self, a: Term, b: Term) -> Term:
        """`a * b`."""
        left, right = self.parts(a), self.parts(b)
        if len(left) * len(right) > _MOST:
            return self.atom("mul", *sorted((a, b)))
        return self.total([(s * t, self._times(x, y)) for s, x in left for t, y in right])

    def _times(self, a: tuple[Term, ...], b: tuple[Term, ...]) -> tuple[Term, ...]:
        """Factors in order; a number and its inverse are none."""
        found = sorted((*a, *b))
        for factor in tuple(found):
            kind, *rest = self.made[factor]
            if kind == "inverse" and rest[0] in found:
                found.remove(factor)
                found.remove(rest[0])
        return tuple(found)

    def div(self, a: Term, b: Term) -> Term:
        """`a / b`."""
        return self.mul(a, self.atom("inverse", b))

    def without(self, term: Term, factor: Term) -> Term | None:
        """What is multiplied by `factor` to give a term; `None` where something is not."""
        found: list[Monomial] = []
        for sign, factors in self.parts(term):
            if factor not in factors:
                return None
            at = factors.index(factor)
            found.append((sign, (*factors[:at], *factors[at + 1 :])))
        return self.total(found)

    def names(self, term: Term) -> tuple[str, ...]:
        """What a term is made of, down to named values, weights, states and inputs; in words, for people."""
        return tuple(dict.fromkeys(self._names(term, set())))

    def _names(self, term: Term, seen: set[Term]) -> Iterator[str]:
        if term in seen:
            return
        seen.add(term)
        kind, *rest = self.made[term]
        if kind in LEAVES:
            yield f"{LEAVES[str(kind)]} `{rest[0]}`"
            return
        below = [f for _, factors in rest[0] for f in factors] if kind == _SUM else rest  # type: ignore[attr-defined]
        below = list(rest[0]) if kind == "by layer" else below  # type: ignore[call-overload]
        for each in below:
            if isinstance(each, int) and not isinstance(each, bool):
                yield from self._names(each, seen)


# Atoms at which a value's description ends; the first thing in them is a name.
LEAVES = {
    "value": "the value",
    "before": "the earlier",
    "weight": "the weight",
    "expert": "the expert's",
    "array": "what lies in",
    "cache": "the cache",
    "input": "the input",
}
