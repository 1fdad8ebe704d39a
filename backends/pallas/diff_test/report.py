"""What was compared of a megakernel and the reference, and what may differ by how much."""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import field, frozen

from ....dsl.program import ir as p

STEP = "step"  # what comes before the layers and after them


@frozen
class Errors:
    """The cosine of two values, and their largest and root mean square difference, relative to the reference's."""

    cosine: float = 1.0
    largest: float = 0.0
    rms: float = 0.0

    def within(self, limits: Errors) -> bool:
        """Whether none is worse than the limits; what is no number is."""
        return bool(self.cosine >= limits.cosine and self.largest <= limits.largest and self.rms <= limits.rms)

    def badness(self, limits: Errors) -> float:
        """How close to the limits: 1 is there."""
        ratios = (
            (1 - self.cosine) / (1 - limits.cosine),
            self.largest / limits.largest,
            self.rms / limits.rms,
        )
        return max(float("inf") if np.isnan(ratio) else ratio for ratio in ratios)


# Sums in another order differ by some units in the last place; in bf16 a value may be rounded to the other side.
LIMITS = {"f32": Errors(1 - 1e-4, 1e-3, 3e-4), "bf16": Errors(1 - 1e-4, 3e-2, 1e-2)}


@frozen
class Comparison:
    """A value that a part's run left, against the reference's; `layer` is `None` for the step's own.

    `own` is the error of this part alone, `carried` that of all parts up to here, of values that are carried.
    """

    part: str
    value: str
    layer: int | None
    step: int
    row: int
    own: Errors
    carried: Errors | None = None


@frozen
class Choice:
    """The ids that a row's step chose; `agrees` also where the reference's two best logits are as good as equal."""

    step: int
    row: int
    token: int
    position: int
    kernel: int
    reference: int
    agrees: bool


@frozen
class Verified:
    """All that was compared."""

    limits: Errors
    comparisons: tuple[Comparison, ...] = field(repr=False)
    choices: tuple[Choice, ...]

    def by_part(self) -> dict[str, list[Comparison]]:
        """In the order in which parts run."""
        by_part: dict[str, list[Comparison]] = {}
        for each in self.comparisons:
            by_part.setdefault(each.part, []).append(each)
        return by_part

    def worst(self, part: str) -> Comparison:
        """The comparison of a part that is nearest to its limits, or farthest beyond."""
        return max(self.by_part()[part], key=lambda c: c.own.badness(self.limits))

    @property
    def red(self) -> tuple[str, ...]:
        """The parts that differ from the reference."""
        return tuple(part for part in self.by_part() if not self.worst(part).own.within(self.limits))

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not self.red and all(choice.agrees for choice in self.choices)


def limits_of(program: p.Program) -> Errors:
    """What a part may differ by; sums that travel in bf16 are as coarse as values in it."""
    coarse = any(exchange.wire == "bf16" for exchange in program.exchanges.values())
    return LIMITS["bf16" if coarse else program.instance.working]


def errors(value: Any, reference: Any) -> Errors:
    """Of a value; zero where the reference is, too, is right, and so is what is infinite in both."""
    a, b = (np.asarray(v, np.float64).reshape(-1) for v in (value, reference))
    masked = np.isinf(b) & (a == b)
    a, b = a[~masked], b[~masked]
    if not b.size:
        return Errors()
    difference, largest, rms = np.abs(a - b), np.abs(b).max(initial=0.0), np.sqrt(np.mean(b * b))
    if not largest:
        wrong = not np.array_equal(a, b)
        return Errors(cosine=float("nan")) if wrong else Errors()
    length = np.sqrt(np.mean(a * a))
    cosine = np.mean(a * b) / (length * rms) if length > 0 else float("nan") if np.isnan(length) else 0.0
    return Errors(float(cosine), float(difference.max() / largest), float(np.sqrt(np.mean(difference**2)) / rms))
