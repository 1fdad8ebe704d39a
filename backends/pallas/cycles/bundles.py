"""Counting the bundles that a kernel executes, from the compiler's own schedule.

A bundle issues in a cycle when nothing stalls, so the count is a lower bound of a kernel's time that needs no TPU.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import frozen

from .llo_schedule import Region, entry, regions

# The schedule as it will run, and once more with named scopes marked; marks cost bundles, so they only give names.
_PLAIN, _NAMED = "plain", "named"
_FLAGS = "--xla_jf_dump_to={} --xla_jf_dump_llo_text=true --xla_jf_dump_llo_pass_label_regex=final_bundles"
_MARKS = " --xla_enable_custom_call_region_trace=true"


@frozen
class Row:
    """A region's share: `bundles` are its own, without those of regions inside; `times` is how often it runs in a call.

    `name` is the named scope by which its times are known, or else the first that begins in it, or its place in the
    schedule. `known` is false for a branch of which nothing is known but that it runs no more often than what it is in.
    """

    name: str
    kind: str
    depth: int
    bundles: int
    times: float
    known: bool

    @property
    def total(self) -> float:
        """Bundles executed in a call."""
        return self.bundles * self.times


@frozen
class Bundles:
    """Bundles that one call executes, at most; `static` is how many the kernel has.

    `rows` are its regions in the order of the code. `exact` is false if the schedule had to be counted with marks in
    it, which cost some bundles.
    """

    total: int
    static: int
    rows: tuple[Row, ...]
    exact: bool

    @property
    def by_region(self) -> dict[str, int]:
        """Executed bundles by name."""
        totals: dict[str, float] = {}
        for row in self.rows:
            totals[row.name] = totals.get(row.name, 0) + row.total
        return {name: round(total) for name, total in totals.items()}


class UncountableError(ValueError):
    """A schedule that cannot be counted, with the reason: a loop without a count, or a hint that fits nothing."""


def environment(folder: Path, named: bool = False) -> dict[str, str]:
    """The environment of a new process whose compiler writes schedules into a folder."""
    arguments = os.environ.get("LIBTPU_INIT_ARGS", "")
    return {**os.environ, "LIBTPU_INIT_ARGS": f"{arguments} {_FLAGS.format(folder)}{_MARKS * named}".strip()}


def dump(command: Sequence[str], folder: Path, timeout: float) -> None:
    """Let a command compile a kernel in two processes at once, which write its schedules for `count`.

    Raises subprocess.CalledProcessError with what a process wrote, or TimeoutExpired after so many seconds.
    """
    running = []
    for name in (_PLAIN, _NAMED):
        (folder / name).mkdir(parents=True, exist_ok=True)
        running.append(
            subprocess.Popen(
                command,
                env=environment(folder / name, name == _NAMED),
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        )
    try:
        for process in running:
            stdout, _ = process.communicate(timeout=timeout)
            if process.returncode:
                raise subprocess.CalledProcessError(process.returncode, command, stdout)
    finally:
        for process in running:
            process.kill()
            process.communicate()


def count(
    folder: Path,
    trips: Mapping[str, float] | None = None,
    kernel: str = "",
    small: Mapping[str, float] | None = None,
) -> Bundles:
    """Count the bundles that a call executes, from what `dump` left in a folder.

    Loops between constants count themselves. `trips` says of other loops, and of branches, how often they run in *one
    call* in all, by a named scope that begins inside the loop's body or the branch: for a loop over cache tiles in 16
    of 64 layers `{"full": 16, "tile": 16 * tiles}`. A branch that is not named is counted as often as what it is in.
    `small` says the same of loops and branches that the compiler may have unrolled, or made predicated instructions
    of: then they count as often as what they are in; several with one scope share what is said of it. `kernel` chooses
    one by its name or the beginning of it.

    Raises UncountableError.
    """
    plain, marked = (regions(_schedule(folder / name, kernel)) for name in (_PLAIN, _NAMED))
    # Marks may keep the compiler from a simplification: then the marked schedule is the one that is counted.
    exact = plain.shape == marked.shape
    schedule = _name(plain, marked) if exact else marked
    hints = dict(trips or {})
    _check(schedule, hints)
    rows = tuple(_rows(schedule, 1, 0, True, hints, _shared(schedule, hints, small or {})))
    return Bundles(round(sum(row.total for row in rows)), sum(row.bundles for row in rows), rows, exact)


def _check(schedule: Region, hints: Mapping[str, float]) -> None:
    """Each hint is of one region, and each region has at most one."""
    where = {name: [region for region in schedule.all if name in region.scopes] for name in hints}
    for name, found in where.items():
        if not found:
            scopes = ", ".join(name for region in schedule.all for name in region.scopes) or "none"
            raise UncountableError(f"no loop or branch begins a scope `{name}`; there are: {scopes}")
        if len(found) > 1:
            raise UncountableError(f"`{name}` begins in {len(found)} regions")
        if found[0].kind == "call":
            raise UncountableError(f"`{name}` begins outside of loops and branches")
        if twice := sorted(hints.keys() & set(found[0].scopes) - {name}):
            raise UncountableError(f"`{name}` and `{twice[0]}` begin in the same region")


def _shared(schedule: Region, hints: Mapping[str, float], small: Mapping[str, float]) -> dict[str, float]:
    """Of what may be regions, those that are, and how often each of them runs."""
    counts = Counter(_begins(region) for region in schedule.all if not hints.keys() & set(region.scopes))
    return {name: times / counts[name] for name, times in small.items() if counts[name]}


def _begins(region: Region) -> str:
    """The scope that a region is of, if nothing else says how often it runs: the first that begins in it."""
    return region.scopes[0] if region.scopes and region.kind != "call" and region.trips is None else ""


def _rows(
    region: Region, around: float, depth: int, known: bool, hints: Mapping[str, float], small: Mapping[str, float]
) -> list[Row]:
    """A region and those inside; `around` is how often the region around it runs."""
    name = next((scope for scope in region.scopes if scope in hints), "".join(region.scopes[:1]))
    name = name or f"{region.kind} {region.first:#x}"
    hinted = hints.get(name, small.get(_begins(region)))
    times = around
    if hinted is not None:
        times, known = hinted, True
    elif region.kind == "loop":
        if region.trips is None:
            raise UncountableError(f"the loop at bundle {region.first:#x} ({name}) has no constant count: give trips")
        times = around * region.trips
    elif region.kind == "branch":
        known = False
    row = Row("kernel" if region.kind == "call" else name, region.kind, depth, region.own, times, known)
    return [row, *(each for inside in region.inside for each in _rows(inside, times, depth + 1, known, hints, small))]


def _name(plain: Region, marked: Region) -> Region:
    """A schedule with the scopes of its marked twin."""
    inside = tuple(_name(a, b) for a, b in zip(plain.inside, marked.inside, strict=True))
    return Region(plain.kind, plain.first, plain.last, plain.trips, plain.own, marked.scopes, inside)


def _schedule(folder: Path, kernel: str) -> str:
    """The text of a kernel's last schedule: the compiler may have tried more than one."""
    by_name: dict[str, str] = {}
    for path in sorted(folder.glob("*-final_bundles.txt")):
        if "schedule-analysis" not in path.name:
            text = path.read_text("utf-8")
            name, opcode = entry(text)
            if opcode == "custom-call" and name.startswith(kernel):
                by_name[name] = text
    if len(by_name) != 1:
        names = ", ".join(sorted(by_name)) or "none"
        raise UncountableError(f"one kernel was expected in {folder.name}, and there are: {names}")
    return next(iter(by_name.values()))
