"""What a schedule needs of a core's memories, and the refusal of what does not fit."""

from __future__ import annotations

from ..diagnostics import Diagnostic, Label, MksError, Sink
from ..model.instance import Instance
from ..program.bill import Bill, Line, bill, gib, mib
from ..program.ir import Program
from ..program.lower import lower
from ..schedule.ir import Schedule
from ..schedule.shares import Shares
from .estimate import estimate
from .remedies import remedies
from .traffic import Traffic

_MOST_LINES = 8


def charge(shares: Shares, rows: int, counts: Traffic) -> Bill:
    """The bill of the Program at so many rows, or an estimate where there is none."""
    try:
        return bill(lower(shares.schedule, shares.instance, rows))
    except MksError:
        return estimate(shares, rows, counts)


def lower_fitting(schedule: Schedule, instance: Instance, rows: int, *, consecutive: bool = False) -> Program:
    """A Program that fits its memories. Raises `MksError` where it does not."""
    program, sink = lower(schedule, instance, rows, consecutive=consecutive), Sink()
    check_capacity(program.shares, bill(program), sink, settled=True)
    if sink.found:
        raise MksError(sink.found)
    return program


def check_capacity(shares: Shares, found: Bill, sink: Sink, settled: bool = False) -> None:
    """E301, E302 or E303 for what does not fit; W301 where only the compiler can tell, unless that is `settled`."""
    schedule = shares.schedule
    at, core = f"at rows = {found.rows}", f"a {schedule.target.name} core has"
    if found.held > found.hbm_limit:
        sink.report("E302", f"`{schedule.name}` needs {gib(found.held)} of HBM a core {at}; {core} "
                    f"{gib(found.hbm_limit)}", schedule.span, notes=(_words(found.hbm),))  # fmt: skip
    if found.total > found.limit and not (settled and found.in_band):
        sink.found.append(_too_much(shares, found, f"of VMEM {at}; {core} {mib(found.limit)}"))
    elif found.scalars > found.smem_limit:
        message = f"`{schedule.name}` needs {mib(found.scalars)} of SMEM {at}; {core} {mib(found.smem_limit)}"
        place = found.smem[0].span or schedule.span
        sink.report("E303", message, place, found.smem[0].why, notes=(_words(found.smem, 1 << 10, "KiB"),))


def _too_much(shares: Shares, found: Bill, against: str) -> Diagnostic:
    """The refusal, or the warning, with the bill, its largest lines, and what would fit."""
    name = shares.schedule.name
    spans = [line for line in found.lines if line.span is not None][:_MOST_LINES]
    labels = [Label(x.span, f"{x.why} = {mib(x.bytes)}") for x in _each_place_once(spans) if x.span is not None]
    first, *others = labels or [Label(shares.schedule.span)]
    helps = remedies(shares, found)
    if found.in_band:
        helps = ("`mks check --compile` settles it", *helps)
        message = f"`{name}` fits only if compiled: it needs up to {mib(found.total)} {against}"
        return Diagnostic("W301", message, first, tuple(others), (_words(found.lines),), helps)
    about = "about " if found.estimated else ""
    return Diagnostic("E301", f"`{name}` needs {about}{mib(found.total)} {against}", first, tuple(others),
                      (_words(found.lines),), helps)  # fmt: skip


def _each_place_once(lines: list[Line]) -> list[Line]:
    """The largest line of each place in the text, those of half a MiB and more, one at least."""
    found: dict[tuple[int, int], Line] = {}
    for line in lines:
        assert line.span is not None
        found.setdefault((line.span.start, line.span.end), line)
    kept = [line for line in found.values() if line.bytes >= 1 << 19]
    return kept or list(found.values())[:1]


def _words(lines: tuple[Line, ...], unit: int = 1 << 20, name: str = "MiB") -> str:
    """`bill (MiB): stream dense 30.0 + state delta.S 6.0 + 40 more 1.2`."""
    most = [f"{line.name} {line.bytes / unit:.1f}" for line in lines[:_MOST_LINES]]
    rest = lines[_MOST_LINES:]
    if rest:
        most.append(f"{len(rest)} more {sum(line.bytes for line in rest) / unit:.1f}")
    return f"bill ({name}): {' + '.join(most)}"
