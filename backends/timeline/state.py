"""Where the walk over a Program is, and what it has started."""

from __future__ import annotations

from attrs import define, field

from ...dsl.program import ir as p
from .actions import Run, Where
from .figures import Machine


@define
class State:
    """`index` counts the runs of parts, and a bank's experts of the layer at hand; `owed` its fractions of experts.

    `tapes` are each ring's transfers, product and tape rows, `started` and `waited` how many of them; `saves` are
    entries that leave their slots; `bundles` what statements take.
    """

    program: p.Program
    machine: Machine
    position: int
    place: str = "step"
    layer: int | None = None
    tapes: dict[str, list[tuple[str, int]]] = field(factory=dict)
    started: dict[str, int] = field(factory=dict)
    waited: dict[str, int] = field(factory=dict)
    saves: dict[tuple[str, int], None] = field(factory=dict)
    index: dict[str, int] = field(factory=dict)
    owed: dict[str, float] = field(factory=dict)
    bundles: dict[int, float] = field(factory=dict)

    def where(self, what: str) -> Where:
        """The place of an action."""
        return Where(self.place, self.layer, what.removeprefix(f"{self.place}."))

    def run(self, bundles: float, what: str, unit: str = "vpu") -> Run:
        """So many bundles."""
        return Run(self.where(what), bundles / self.machine.clock.value, unit)
