"""A text with everything that is known of it; each thing is found when it is first asked for."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from ..diagnostics import Diagnostic, Sink, reportable
from ..frontend import Definition, Reader, check_source
from ..model.instance import Instance
from ..program import ir as p
from ..program.analysis.check_program import check_program
from ..program.analysis.report import ScheduleReport, report
from ..program.lower.passes import Lowered, lower_all
from ..records import frozen
from ..schedule.ir import Schedule
from ..source import Source
from ..text.files import read_source
from .mentions import MentionIndex, index_mentions


@frozen(slots=False, eq=False)
class Analysis:
    """One version of a file; `folder` is where its `use` lines look, `read` opens them."""

    source: Source
    folder: Path | None = None
    read: Reader = read_source

    @cached_property
    def definition(self) -> Definition:
        """What it defines."""
        return check_source(self.source, self.folder, self.read)

    @property
    def complete(self) -> bool:
        """Whether it was seen to have models without errors."""
        known: Definition | None = vars(self).get("definition")
        return known is not None and bool(known.instances)

    @cached_property
    def index(self) -> MentionIndex:
        """Its names, and those of the files that it uses."""
        return index_mentions(self.definition.files)

    @cached_property
    def made(self) -> dict[tuple[str, str], tuple[Schedule, Instance]]:
        """The file's own schedules that have no errors."""
        lowered = {}
        for key in self.definition.own_schedules:
            schedule, instance = self.definition.schedules.get(key), self.definition.instances.get(key[0])
            if schedule is not None and instance is not None:
                lowered[key] = (schedule, instance)
        return lowered

    @cached_property
    def _lowered(self) -> dict[tuple[str, str], Lowered]:
        return {key: lower_all(*programs) for key, programs in self.made.items()}

    @cached_property
    def _reported(self) -> tuple[dict[tuple[str, str], ScheduleReport], tuple[Diagnostic, ...]]:
        sink, reports = Sink(), {}
        for key, (schedule, instance) in self.made.items():
            lowered = self._lowered[key]
            reports[key] = report(schedule, instance, sink, lowered=lowered)
            sink.diagnostics.extend(check_program(schedule, instance, lines=True, lowered=lowered))
        return reports, tuple(sink.diagnostics)

    @property
    def reports(self) -> dict[tuple[str, str], ScheduleReport]:
        """What `mks check` says of each schedule."""
        return self._reported[0]

    @cached_property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All that `mks check` finds, with what lowering does."""
        return reportable([*self.definition.diagnostics, *self._reported[1]])

    @cached_property
    def programs(self) -> dict[tuple[str, str], p.Program]:
        """Each schedule's Program at its largest number of rows, where there is one."""
        widest = {key: lowered.widest for key, lowered in self._lowered.items()}
        return {key: program for key, program in widest.items() if program is not None}
