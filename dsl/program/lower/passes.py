"""The Programs of all passes that a schedule allows, and what is wrong with any of them."""

from __future__ import annotations

from attrs import field

from ...diagnostics import Diagnostic, MksError
from ...model.instance import Instance
from ...records import frozen
from ...schedule.ir import Pass, Schedule
from ...schedule.shares import Shares
from .. import ir as p
from .lower import lower


@frozen
class Lowered:
    """A schedule's Programs by pass; where a pass has none, `found` says why."""

    shares: Shares
    programs: dict[Pass, p.Program] = field(factory=dict)
    found: list[Diagnostic] = field(factory=list)

    @property
    def widest(self) -> p.Program | None:
        """The decode step of the most rows."""
        rows = {each.tokens: made for each, made in self.programs.items() if not each.consecutive}
        return rows[max(rows)] if rows else None


def lower_all(schedule: Schedule, instance: Instance) -> Lowered:
    """Lower each pass; what stands in the way of several is said once."""
    made = Lowered(Shares(schedule, instance))
    for each in schedule.passes:
        try:
            made.programs[each] = lower(
                schedule, instance, each.tokens, consecutive=each.consecutive, shares=made.shares
            )
        except MksError as e:
            made.found.extend(d for d in e.diagnostics if d not in made.found)
    return made
