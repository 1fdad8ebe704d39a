"""What `mks check` says of a schedule: HBM, bytes a step, the roofline and a VMEM bill, for each number of rows."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from ..diagnostics import Sink
from ..model.instance import Instance
from ..schedule.ir import Schedule
from ..schedule.shares import Shares
from .bill import Bill, bill, check_capacity, gib, mib
from .traffic import Traffic, traffic


@frozen
class ScheduleReport:
    """One schedule, its counts at each number of rows."""

    schedule: Schedule
    rows: tuple[tuple[Traffic, Bill], ...]
    padding: tuple[str, ...]


def report(schedule: Schedule, instance: Instance, sink: Sink) -> ScheduleReport:
    """The counts, and diagnostics where a capacity is exceeded."""
    shares = Shares(schedule, instance)
    found = tuple((traffic(shares, rows), bill(shares, rows)) for rows in schedule.rows)
    for counts, charged in found:
        before = len(sink.found)
        check_capacity(shares, charged, counts.held_bytes, sink)
        if len(sink.found) > before:
            break  # more rows only need more
    return ScheduleReport(schedule, found, _padding(shares))


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
        codec, whole, mine = shares.codec(weight), shares.instance.shape(weight.shape), shares.weight_shape(weight)
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
        vmem = f"{mib(charged.total)} of {mib(charged.limit)}"
        lines.append(f"  {counts.rows:4}  {gib(counts.held_bytes):>9}  {read}  {floor}  {vmem}")
    counts, charged = found.rows[0]
    for title, parts in (("HBM", counts.held), ("read", counts.read), ("VMEM", charged.lines)):
        words = [f"{x.name} {_size(x.bytes)}" + (f" ({x.why})" if x.why else "") for x in parts]
        lines.append(f"  {title} at {counts.rows} row{'s' * (counts.rows > 1)}: {', '.join(words)}")
    return "\n".join(lines)


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
                "hbm_bytes": {x.name: x.bytes for x in counts.held} | {"total": counts.held_bytes},
                "read_bytes": {x.name: x.bytes for x in counts.read} | {"total": counts.read_bytes},
                "flops": counts.flops,
                "roofline_seconds": counts.floor_seconds,
                "bound": counts.bound,
                "vmem_bytes": {x.name: x.bytes for x in charged.lines} | {"total": charged.total},
                "vmem_limit_bytes": charged.limit,
            }
            for counts, charged in found.rows
        ],
    }
