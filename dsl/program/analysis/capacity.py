"""What a schedule needs of a core's memories, and the refusal of what does not fit."""

from __future__ import annotations

from collections.abc import Container, Sequence

from ...diagnostics import Diagnostic, Label, MksError, Sink
from ...model.instance import Instance
from ...schedule.ir import Pass, Schedule
from ...schedule.shares import Shares
from ..ir import Program
from ..lower.lower import lower
from ..verify.prove import prove
from .estimate import estimate
from .memory import Bill, Line, bill, gib, mib
from .remedies import remedies
from .roofline import Traffic

_MOST_LINES = 8


def charge(shares: Shares, program: Program | None, counts: Traffic) -> Bill:
    """The bill of a pass's Program, or an estimate where there is none."""
    return estimate(shares, counts) if program is None else bill(program)


def lower_fitting(schedule: Schedule, instance: Instance, rows: int, *, consecutive: bool = False) -> Program:
    """A Program that fits its memories and is proven free of races. Raises `MksError` where it is not."""
    program, sink = lower(schedule, instance, rows, consecutive=consecutive), Sink()
    check_capacity(program.shares, [bill(program)], sink, frozenset({Pass(rows, consecutive)}))
    wrong = sink.diagnostics or prove(program)
    if wrong:
        raise MksError(wrong)
    return program


def check_capacity(shares: Shares, bills: Sequence[Bill], sink: Sink, settled: Container[Pass] = ()) -> None:
    """E301, E302 or E303 for what does not fit, of the pass that needs most.

    W301 where only the compiler can tell, but for passes that are `settled`.
    """
    schedule, core = shares.schedule, f"a {shares.schedule.target.name} core has"
    most = max(bills, key=lambda each: each.held)
    if most.held > most.hbm_limit:
        sink.report(
            "E302",
            f"`{schedule.name}` needs {gib(most.held)} of HBM a core at {most.of}; {core} {gib(most.hbm_limit)}",
            schedule.span,
            notes=(_words(most.hbm),),
        )
    over = [each for each in bills if each.total > each.limit and not (each.in_band and each.of in settled)]
    most = max(over or bills, key=lambda each: each.total if over else each.scalars)
    if over:
        sink.diagnostics.append(
            _too_much(shares, most, [x.of for x in over], f"of VMEM at {most.of}; {core} {mib(most.limit)}")
        )
    elif most.scalars > most.smem_limit:
        message = f"`{schedule.name}` needs {mib(most.scalars)} of SMEM at {most.of}; {core} {mib(most.smem_limit)}"
        place = most.smem[0].span or schedule.span
        sink.report("E303", message, place, most.smem[0].why, notes=(_words(most.smem, 1 << 10, "KiB"),))


def _too_much(shares: Shares, found: Bill, over: list[Pass], against: str) -> Diagnostic:
    """The refusal, or the warning, with the bill, its largest lines, and what would fit."""
    name = shares.schedule.name
    spans = [line for line in found.lines if line.span is not None][:_MOST_LINES]
    labels = [Label(x.span, f"{x.why} = {mib(x.bytes)}") for x in _each_place_once(spans) if x.span is not None]
    first, *others = labels or [Label(shares.schedule.span)]
    helps = remedies(shares, found, over)
    if found.in_band:
        helps = ("`mks check --compile` settles it", *helps)
        message = f"`{name}` fits only if compiled: it needs up to {mib(found.total)} {against}"
        return Diagnostic("W301", message, first, tuple(others), (_words(found.lines),), helps)
    about = "about " if found.estimated else ""
    return Diagnostic(
        "E301",
        f"`{name}` needs {about}{mib(found.total)} {against}",
        first,
        tuple(others),
        (_words(found.lines),),
        helps,
    )


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
