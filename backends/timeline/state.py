"""Where the walk over a Program is, and what it has started."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from attrs import define, field

from ...dsl.program import ir as p
from .actions import Run, Where
from .counted import Group, always, group
from .machine_model import Machine


@define
class State:
    """`index` counts the runs of parts, and a bank's experts of the layer at hand; `owed` its fractions of experts.

    `tapes` are each ring's transfers, product and tape rows, `started` and `waited` how many of them; `saves` are
    entries that leave their slots; `bundles` what statements take. `loop` is the one that runs, if its length is not
    the Program's; `spent` are estimated bundles by scope and loop, `rounds` iterations of loops, and `factors` what
    estimates are multiplied by.
    """

    program: p.Program
    machine: Machine
    position: int
    scope: str = "step"
    layer: int | None = None
    tapes: dict[str, list[tuple[str, int]]] = field(factory=dict)
    started: dict[str, int] = field(factory=dict)
    waited: dict[str, int] = field(factory=dict)
    saves: dict[tuple[str, int], None] = field(factory=dict)
    index: dict[str, int] = field(factory=dict)
    owed: dict[str, float] = field(factory=dict)
    bundles: dict[int, float] = field(factory=dict)
    loop: str = ""
    spent: dict[Group, float] = field(factory=lambda: defaultdict(float))
    rounds: Counter[Group] = field(factory=Counter)
    factors: Mapping[Group, float] = field(factory=dict)
    always: frozenset[str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.always = always(self.program)

    def where(self, what: str) -> Where:
        """The scope of an action."""
        return Where(self.scope, self.layer, what.removeprefix(f"{self.scope}."))

    def run(self, bundles: float, what: str, unit: str = "vpu") -> Run:
        """So many bundles."""
        return Run(self.where(what), self.seconds(bundles), unit)

    def seconds(self, bundles: float, times: int = 1) -> float:
        """How long they take; so many `times` in a step's course at once."""
        key = group(self.scope, self.loop, self.always)
        self.spent[key] += bundles * times
        return bundles * self.factors.get(key, 1.0) / self.machine.clock.value

    def begin(self, loop: str) -> None:
        """An iteration of a loop."""
        self.loop = loop
        self.rounds[self.scope, loop] += 1
