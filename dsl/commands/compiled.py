"""`mks check --compile`: the compiler's own figures beside those of the bill."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..diagnostics import Diagnostic, Label, MksError
from ..program.analysis.memory import BAND, Bill, bill, mib
from ..program.lower.passes import Lowered
from ..schedule.ir import Pass, Schedule

GROUP = "mks.compilers"


def compiled(schedule: Schedule, lowered: Lowered, diagnostics: list[Diagnostic]) -> dict[Pass, int | None]:
    """VMEM in bytes by pass, as compiled; `None` where it does not fit. `found` grows by what stands in the way.

    What the bill refuses is not tried.
    """
    measure = compiler()
    if isinstance(measure, Diagnostic):
        diagnostics.append(measure)
        return {}
    sizes: dict[Pass, int | None] = {}
    diagnostics += [d for d in lowered.found if d not in diagnostics]
    for each, program in lowered.programs.items():
        charged = bill(program)
        if charged.total > charged.limit * (1 + BAND):
            continue
        print(f"compiling `{schedule.name}` for {schedule.target.name} at {each} …", file=sys.stderr, flush=True)
        try:
            sizes[each] = measure(program).vmem
        except MksError as e:
            sizes[each] = None
            diagnostics += [
                _too_large(schedule, charged, d) if charged.in_band and d.code == "E503" else d for d in e.diagnostics
            ]
    return sizes


def compiler() -> Callable[[Any], Any] | Diagnostic:
    """What another package brings that compiles Programs."""
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        load: Callable[[Any], Any] = point.load()
        return load
    return Diagnostic("E501", "no compiler for kernels is installed", helps=("`pip install 'mks[tpu]'` installs it",))


def _too_large(schedule: Schedule, charged: Bill, diagnostic: Diagnostic) -> Diagnostic:
    message = f"`{schedule.name}` does not fit at {charged.of}: compiled, it needs more VMEM than there is"
    notes = (f"bill: {mib(charged.total)} of {mib(charged.limit)}", *diagnostic.notes[:1])
    return Diagnostic("E301", message, Label(schedule.span), notes=notes)
