"""`mks check --compile`: the compiler's own figures beside those of the bill."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..diagnostics import Diagnostic, Label, MksError
from ..model.instance import Instance
from ..program.bill import BAND, Bill, bill, mib
from ..program.lower import lower
from ..schedule.ir import Schedule

GROUP = "mks.compilers"


def compiled(schedule: Schedule, instance: Instance, found: list[Diagnostic]) -> dict[int, int | None]:
    """VMEM in bytes by rows, as compiled; `None` where it does not fit. `found` grows by what stands in the way.

    What the bill refuses is not tried.
    """
    measure = compiler()
    if isinstance(measure, Diagnostic):
        found.append(measure)
        return {}
    sizes: dict[int, int | None] = {}
    for rows in schedule.rows:
        try:
            program = lower(schedule, instance, rows)
        except MksError as e:
            found += [d for d in e.diagnostics if d not in found]
            return sizes
        charged = bill(program)
        if charged.total > charged.limit * (1 + BAND):
            continue
        print(f"compiling `{schedule.name}` for {schedule.target.name} at rows = {rows} …", file=sys.stderr, flush=True)
        try:
            sizes[rows] = measure(program).vmem
        except MksError as e:
            sizes[rows] = None
            found += [_too_large(schedule, charged, d) if charged.in_band and d.code == "E503" else d
                      for d in e.diagnostics]  # fmt: skip
    return sizes


def compiler() -> Callable[[Any], Any] | Diagnostic:
    """What another package brings that compiles Programs."""
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        load: Callable[[Any], Any] = point.load()
        return load
    return Diagnostic("E501", "no compiler for kernels is installed", helps=("`pip install 'mks[tpu]'` installs it",))


def _too_large(schedule: Schedule, charged: Bill, said: Diagnostic) -> Diagnostic:
    message = f"`{schedule.name}` does not fit at rows = {charged.rows}: compiled, it needs more VMEM than there is"
    notes = (f"bill: {mib(charged.total)} of {mib(charged.limit)}", *said.notes[:1])
    return Diagnostic("E301", message, Label(schedule.span), notes=notes)
