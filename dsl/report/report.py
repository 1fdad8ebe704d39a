"""What `mks check` says of a schedule: HBM, bytes a step, the roofline and a VMEM bill, for each number of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

from ..diagnostics import Sink
from ..model.instance import Instance
from ..program.bill import Bill, Line, gib, mib
from ..schedule.ir import Schedule
from ..schedule.shares import Shares
from .capacity import charge, check_capacity
from .traffic import Traffic, traffic


@frozen
class ScheduleReport:
    """One schedule, its counts at each number of rows; `measured` is VMEM as compiled, where it was."""

    schedule: Schedule
    rows: tuple[tuple[Traffic, Bill], ...]
    padding: tuple[str, ...]
    measured: Mapping[int, int | None] = field(factory=dict)


def report(
    schedule: Schedule, instance: Instance, sink: Sink, measured: Mapping[int, int | None] | None = None
) -> ScheduleReport:
    """The counts, and diagnostics where a capacity is exceeded; what was `measured` needs no warning."""
    measured = measured or {}
    shares = Shares(schedule, instance)
    counted = [(rows, traffic(shares, rows)) for rows in schedule.rows]
    found = tuple((counts, charge(shares, rows, counts)) for rows, counts in counted)
    for _, charged in sorted(found, key=lambda each: -each[1].rows):
        before = len(sink.found)
        check_capacity(shares, charged, sink, charged.rows in measured)
        if len(sink.found) > before:
            break  # fewer rows need less; what fits most of them fits all
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
                words.append(f"{weight.name} = {codec}: shares of {mine[axis]} of {whole[axis]} end inside a group; "
                             "each core keeps the group's scale")  # fmt: skip
    return words


def as_text(found: ScheduleReport) -> str:
    """For people; all figures are predicted."""
    schedule = found.schedule
    shape = "x".join(map(str, schedule.topology))
    cores = f"{schedule.cores} core{'s' * (schedule.cores > 1)}"
    machine = f"{schedule.target.name} {shape}, {cores}, context {schedule.context}"
    lines = [f"schedule `{schedule.name}` for `{schedule.model.name}`: {machine} (predicted, one core)"]
    lines += [f"  {text}" for text in found.padding]
    lines.append("  rows  HBM held   read a step  roofline    VMEM")
    for counts, charged in found.rows:
        read, floor = f"{counts.read_bytes / 1e9:8.3f} GB", f"{counts.floor_seconds * 1e3:7.3f} ms"
        vmem = f"{mib(charged.total)} of {mib(charged.limit)}{', an estimate' * charged.estimated}"
        if (size := found.measured.get(counts.rows)) is not None:
            vmem += f", compiled {mib(size)}"
        lines.append(f"  {counts.rows:4}  {gib(charged.held):>9}  {read}  {floor}  {vmem}")
    counts, charged = found.rows[0]
    where = f" (at its peak, in {charged.peak})" if charged.peak else ""
    parts = {"HBM": charged.hbm, "read": counts.read, f"VMEM{where}": charged.lines, "SMEM": charged.smem}  # fmt: skip
    for title, shown in parts.items():
        if shown:
            lines.append(f"  {title} at {counts.rows} row{'s' * (counts.rows > 1)}: {', '.join(_largest(shown))}")
    return "\n".join(lines)


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
        "rows": [
            {
                "rows": counts.rows,
                "hbm_bytes": {x.name: x.bytes for x in charged.hbm} | {"total": charged.held},
                "read_bytes": {x.name: x.bytes for x in counts.read} | {"total": counts.read_bytes},
                "flops": counts.flops,
                "roofline_seconds": counts.floor_seconds,
                "bound": counts.bound,
                "vmem_bytes": {x.name: x.bytes for x in charged.lines} | {"total": charged.total},
                "vmem_limit_bytes": charged.limit,
                "vmem_peak": charged.peak,
                "vmem_estimated": charged.estimated,
                "vmem_compiled_bytes": found.measured.get(counts.rows),
                "smem_bytes": {x.name: x.bytes for x in charged.smem} | {"total": charged.scalars},
                "semaphore_bytes": {x.name: x.bytes for x in charged.semaphores},
            }
            for counts, charged in found.rows
        ],
    }
