"""How many experts a batch reads, were routing uniform."""

from __future__ import annotations

from functools import cache
from math import comb


def distinct(experts: int, top: int, rows: int) -> float:
    """Expected distinct experts of `rows` tokens that choose `top` each."""
    return experts * (1 - (1 - top / experts) ** rows)


def alone(experts: int, top: int, rows: int) -> float:
    """Of the distinct experts of `rows` tokens, the part that a single one chose."""
    missed = 1 - top / experts
    return rows * (top / experts) * missed ** (rows - 1) / (1 - missed**rows)


@cache
def largest_group(experts: int, groups: int, chosen: int) -> float:
    """Expected number of chosen experts in the group that has most, of `chosen` drawn without repetition."""
    if groups == 1 or chosen == 0:
        return float(chosen)
    size = experts // groups
    # Ways to draw j from one group, scaled to stay in a float's range.
    scale = [comb(size, j) / comb(size, min(chosen, size) // 2 or 1) for j in range(min(chosen, size) + 1)]
    total = _coefficient(scale, groups, chosen)
    expected, most = 0.0, -(-chosen // groups)
    for limit in range(most - 1, min(chosen, size)):
        tail = 1 - _coefficient(scale[: limit + 1], groups, chosen) / total
        if tail < 1e-4:
            break
        expected += tail
    return most - 1 + expected


def _coefficient(base: list[float], exponent: int, degree: int) -> float:
    """That of the power `degree` in a polynomial's power: the last multiplication is not made in full."""
    one = _power(base, exponent // 2, degree)
    other = _times(one, base, degree) if exponent % 2 else one
    least = max(0, degree - len(other) + 1)
    return sum(x * other[degree - i] for i, x in enumerate(one[least : degree + 1], least))


def _power(base: list[float], exponent: int, degree: int) -> list[float]:
    """A polynomial's power, cut above `degree`."""
    result = [1.0]
    while exponent:
        if exponent & 1:
            result = _times(result, base, degree)
        exponent >>= 1
        if exponent:
            base = _times(base, base, degree)
    return result


def _times(a: list[float], b: list[float], degree: int) -> list[float]:
    result = [0.0] * min(len(a) + len(b) - 1, degree + 1)
    for i, x in enumerate(a[: len(result)]):
        if x:
            for j, y in enumerate(b[: len(result) - i]):
                result[i + j] += x * y
    return result
