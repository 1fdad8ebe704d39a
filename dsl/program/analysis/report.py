"""What `mks check` says of a schedule: HBM, bytes a step, the roofline and a VMEM bill, for each of its passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field

from ...diagnostics import Sink
from ...model.instance import Instance
from ...records import frozen
from ...schedule.ir import Pass, Schedule
from ...schedule.shares import Shares
from ..lower.passes import Lowered, lower_all
from .capacity import charge, check_capacity
from .memory import Bill, Line, gib, mib
from .roofline import Traffic, traffics


@frozen
class ScheduleReport:
    """One schedule, the counts of each of its passes; `measured` is VMEM as compiled, where it was."""

    schedule: Schedule
    passes: tuple[tuple[Traffic, Bill], ...]
    padding: tuple[str, ...]
    measured: Mapping[Pass, int | None] = field(factory=dict)

    @property
    def rows(self) -> tuple[tuple[Traffic, Bill], ...]:
        """Those of decode steps."""
        return tuple(each for each in self.passes if not each[0].of.consecutive)

    @property
    def largest(self) -> Bill:
        """The bill of the pass that takes most VMEM."""
        return max((charged for _, charged in self.passes), key=lambda each: each.total)


def report(
    schedule: Schedule,
    instance: Instance,
    sink: Sink,
    measured: Mapping[Pass, int | None] | None = None,
    lowered: Lowered | None = None,
) -> ScheduleReport:
    """The counts, and diagnostics where a capacity is exceeded; what was `measured` needs no warning.

    `lowered` are the schedule's Programs, where they are there already.
    """
    measured = measured or {}
    made = lowered or lower_all(schedule, instance)
    shares = made.shares
    found = tuple((counts, charge(shares, made.programs.get(counts.of), counts)) for counts in traffics(shares))
    check_capacity(shares, [charged for _, charged in found], sink, measured)
    return ScheduleReport(schedule, found, _padding(shares), measured)


def _padding(shares: Shares) -> tuple[str, ...]:
    words = []
    for name, shard in shares.schedule.shards.items():
        if name == "position":
            continue
        ways, whole, each = shares.schedule.ways(shard.axes), shares.instance.values[name], shares.size(name)
        assert isinstance(whole, int)
        if each * ways != whole:
            how = f"repeated {each * ways // whole} times" if shard.repeat else f"padded to {each * ways}"
            words.append(f"{name} = {whole} over {ways} cores: {each} each, {how}")
    return (*words, *_cut_groups(shares))


def _cut_groups(shares: Shares) -> list[str]:
    """Weights whose shares end inside a codec's group: each core that has a piece keeps the group's scale."""
    words = []
    for weight in shares.schedule.model.weights.values():
        codec, whole, mine = weight.codec, shares.instance.shape(weight.shape), shares.weight_shape(weight)
        if shares.codec(weight) != codec:
            continue  # its blocks begin anew on each core
        axes = (-2, -1) if codec.name == "fp8" and len(whole) > 1 else (-1,)
        for axis in axes:
            if codec.group and mine[axis] < whole[axis] and mine[axis] % codec.group:
                words.append(
                    f"{weight.name} = {codec}: shares of {mine[axis]} of {whole[axis]} end inside a group; "
                    "each core keeps the group's scale"
                )
    return words


def as_text(found: ScheduleReport) -> str:
    """For people; all figures are predicted."""
    schedule = found.schedule
    shape = "x".join(map(str, schedule.topology))
    cores = f"{schedule.cores} core{'s' * (schedule.cores > 1)}"
    machine = f"{schedule.target.name} {shape}, {cores}, context {schedule.context}"
    lines = [f"schedule `{schedule.name}` for `{schedule.model.name}`: {machine} (predicted, one core)"]
    lines += [f"  {text}" for text in found.padding]
    wide = max([4, *(len(_named(counts.of)) for counts, _ in found.passes)])
    lines.append(f"  {'rows':>{wide}}  HBM held   read a step  roofline    VMEM")
    for counts, charged in found.passes:
        read, floor = f"{counts.read_bytes / 1e9:8.3f} GB", f"{counts.floor_seconds * 1e3:7.3f} ms"
        vmem = f"{mib(charged.total)} of {mib(charged.limit)}{', an estimate' * charged.estimated}"
        if (size := found.measured.get(counts.of)) is not None:
            vmem += f", compiled {mib(size)}"
        lines.append(f"  {_named(counts.of):>{wide}}  {gib(charged.held):>9}  {read}  {floor}  {vmem}")
    counts, charged = found.passes[0]
    rows = counts.of.tokens
    where = f" (at its peak, in {charged.peak})" if charged.peak else ""
    parts = {"HBM": charged.hbm, "read": counts.read, f"VMEM{where}": charged.lines, "SMEM": charged.smem}
    for title, shown in parts.items():
        if shown:
            lines.append(f"  {title} at {rows} row{'s' * (rows > 1)}: {', '.join(_largest(shown))}")
    return "\n".join(lines)


def _named(of: Pass) -> str:
    return f"span {of.tokens}" if of.consecutive else str(of.tokens)


def _largest(lines: Sequence[Line]) -> list[str]:
    """Those that matter in words, the rest as one."""
    total = sum(line.bytes for line in lines)
    shown = [line for line in lines if line.bytes * 100 >= total]
    words = [f"{x.name} {_size(x.bytes)}" + (f" ({x.why})" if x.why else "") for x in shown]
    rest = [line.bytes for line in lines if line.bytes * 100 < total]
    return [*words, f"{len(rest)} more {_size(sum(rest))}"] if rest else words


def _size(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 10**9 else f"{size / 1e6:.2f} MB" if size >= 10**5 else f"{size} B"


def as_json(found: ScheduleReport) -> dict[str, Any]:
    """For programs: bytes, seconds and operations as numbers."""
    schedule = found.schedule
    return {
        "name": schedule.name,
        "model": schedule.model.name,
        "target": schedule.target.name,
        "topology": "x".join(map(str, schedule.topology)),
        "cores": schedule.cores,
        "context": schedule.context,
        "padding": list(found.padding),
        "rows": [{"rows": counts.of.tokens} | _counted(found, counts, charged) for counts, charged in found.rows],
        "spans": [
            {"span": counts.of.tokens} | _counted(found, counts, charged)
            for counts, charged in found.passes
            if counts.of.consecutive
        ],
    }


def _counted(found: ScheduleReport, counts: Traffic, charged: Bill) -> dict[str, Any]:
    """A pass's figures."""
    return {
        "hbm_bytes": {x.name: x.bytes for x in charged.hbm} | {"total": charged.held},
        "read_bytes": {x.name: x.bytes for x in counts.read} | {"total": counts.read_bytes},
        "flops": counts.flops,
        "roofline_seconds": counts.floor_seconds,
        "bound": counts.bound,
        "vmem_bytes": {x.name: x.bytes for x in charged.lines} | {"total": charged.total},
        "vmem_limit_bytes": charged.limit,
        "vmem_peak": charged.peak,
        "vmem_estimated": charged.estimated,
        "vmem_compiled_bytes": found.measured.get(counts.of),
        "smem_bytes": {x.name: x.bytes for x in charged.smem} | {"total": charged.scalars},
        "semaphore_bytes": {x.name: x.bytes for x in charged.semaphores},
    }
