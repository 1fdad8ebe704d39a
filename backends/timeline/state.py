"""Where the walk over a Program is, and what it has started."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from attrs import define, field

from ...dsl.model.ir import Ref
from ...dsl.program import ir as p
from ...dsl.program.ir.walk import Path, Placed
from ...dsl.targets.target import Target
from .actions import Run, Verb, Where, Work
from .counted import Group, always, group


@define
class State:
    """Where the walk is: in which `phase`, `at` the op at hand, and what was started and not yet waited for.

    `index` counts the runs of parts, `experts` a pool's experts of the layer at hand; `owed` its fractions of experts.
    `tapes` are each ring's transfers, product and tape rows, `started` and `waited` how many of them; `saves` are
    entries that leave their slots; `bundles` what statements take, by their paths. `loop` is the one that runs, if its
    length is not the Program's; `spent` are estimated bundles by place and loop, `rounds` iterations of loops, and
    `factors` what estimates are multiplied by.
    """

    program: p.Program
    target: Target
    position: int
    at: Placed = field(init=False)
    phase: p.Phase = field(init=False)
    scope: str = "step"
    layer: int | None = None
    tapes: dict[p.RingRef, list[tuple[p.ProductRef, int]]] = field(factory=dict)
    started: dict[p.RingRef, int] = field(factory=dict)
    waited: dict[p.RingRef, int] = field(factory=dict)
    saves: dict[tuple[p.ArrayRef, int], None] = field(factory=dict)
    index: dict[str, int] = field(factory=dict)
    experts: dict[p.ExpertPoolRef, int] = field(factory=dict)
    owed: dict[p.ExpertPoolRef, float] = field(factory=dict)
    bundles: dict[Path, float] = field(factory=dict)
    loop: str = ""
    spent: dict[Group, float] = field(factory=lambda: defaultdict(float))
    rounds: Counter[Group] = field(factory=Counter)
    factors: Mapping[Group, float] = field(factory=dict)
    always: frozenset[str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.always = always(self.program)

    @property
    def rows(self) -> int:
        """The rows of values at the op at hand."""
        return self.program.rows_at(self.at.place)

    def where(self, of: Ref | Work, verb: Verb | None = None) -> Where:
        """The place of an action; what is of the place is shown without it."""
        label = of.value if isinstance(of, Work) else of.label
        what = label.removeprefix(f"{self.scope}.") if verb is None else f"{verb.value} {label}"
        return Where(self.scope, self.layer, what, of, verb)

    def run(self, bundles: float, of: Ref | Work, unit: str = "vpu", verb: Verb | None = None) -> Run:
        """So many bundles."""
        return Run(self.where(of, verb), self.seconds(bundles), unit)

    def seconds(self, bundles: float, times: int = 1) -> float:
        """How long they take; so many `times` in a step's course at once."""
        key = group(self.scope, self.loop, self.always)
        self.spent[key] += bundles * times
        return bundles * self.factors.get(key, 1.0) / self.target.compute.clock.value

    def begin(self, loop: str) -> None:
        """An iteration of a loop."""
        self.loop = loop
        self.rounds[self.scope, loop] += 1
