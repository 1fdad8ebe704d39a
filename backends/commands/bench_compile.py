"""`mks bench compile`."""

from __future__ import annotations

import argparse
import json
import pickle
import re
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...dsl.commands.argtypes import number
from ...dsl.program.analysis.capacity import lower_fitting
from ..opening.cannot_open import CannotOpen
from .compile import add_choice, chosen, parse
from .limited_process import run_limited
from .run_command import command_parser, guarded
from .terminal import working

if TYPE_CHECKING:
    from ...dsl.program.ir import Program

_ABOUT = """\
Compile a model's decode step by its schedule's kernels, and as ordinary XLA programs made
of the reference backend: each layer written out, and equal layers as loops. All are sharded
alike and compiled for the same devices, one after the other, each in a process of its own.

Seconds are of wall time; `all cores` is processor time, which other work on the machine changes
least: for lowering and compiling, or of the whole process where that was stopped.
"""
_EXAMPLES = """\
examples:
  mks bench compile
  mks bench compile qwen38 --rows 8 --json
  mks bench compile kimi_k3 --rows 1 --timeout 600 --memory 8
"""
_MODULE = "mks.backends.pallas.aot.xla_baseline"
_STOPPED = {"time": "it took too long", "memory": "it took too much memory", "error": "the compiler gave up"}
_ERROR = re.compile(r"^[\w.]+: .*", re.MULTILINE)
_WAYS = {"kernels": "kernels of mks", "unrolled": "XLA, layers unrolled", "scanned": "XLA, layers in loops"}


def bench_compile(argv: list[str]) -> int:
    """Compare times of compilation; the exit status: 0, 1 for errors, 2 for wrong usage."""
    return guarded(partial(parse, make_parser()), argv, _bench)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = command_parser("bench compile", _ABOUT, _EXAMPLES)
    add_choice(parser, model="qwen38")
    add = parser.add_argument
    add(
        "--timeout",
        metavar="S",
        type=number(1, 86400),
        default=300.0,
        help="stop each compilation after this many seconds; the table then says `over` (default: %(default)g)",
    )
    add(
        "--memory",
        metavar="GIB",
        type=number(0.1, 65536),
        default=8.0,
        help="stop a compilation that uses more memory (default: %(default)g)",
    )
    add("--json", action="store_true", help="print one JSON object instead of a table")
    return parser


def _bench(args: argparse.Namespace) -> None:
    _, schedule, instance = chosen(args)
    rows = schedule.rows[0]
    program = lower_fitting(schedule, instance, rows)
    timings = {way: _timed(program, way, args.timeout, args.memory * (1 << 30)) for way in _WAYS}
    ratios, work = (_ratios(timings, key) for key in ("total_s", "cpu_s"))
    shape = "x".join(map(str, schedule.topology))
    if args.json:
        result = {
            "model": schedule.model.name,
            "schedule": schedule.name,
            "rows": rows,
            "context": schedule.context,
            "target": schedule.target.name,
            "topology": shape,
            **timings,
            "times_faster": ratios,
            "times_less_work": work,
        }
        print(json.dumps(result, indent=1))
        return
    print(f"{schedule.model.name}, {schedule.name}: {schedule.target.name} {shape}, rows {rows}, seconds\n")
    print(f"{'':22}{'lower':>9}{'compile':>9}{'total':>13}{'all cores':>13}{'GiB':>7}")
    for way, x in timings.items():
        total, cores = (f"{'over ' * bool(x['stopped'])}{x[key]:.2f}" for key in ("total_s", "cpu_s"))
        most = x["memory_bytes"] / (1 << 30)
        print(f"{_WAYS[way]:22}{_of(x['lower_s']):>9}{_of(x['compile_s']):>9}{total:>13}{cores:>13}{most:>7.2f}")
    print()
    for way, x in timings.items():
        if x["stopped"]:
            print(f"{_WAYS[way]}: stopped, {_STOPPED[x['stopped']]}{': ' * bool(x['reason'])}{x['reason']}")
    for way, ratio in ratios.items():
        least = "at least " * bool(timings[way]["stopped"])
        print(f"{least}{ratio} times faster than {_WAYS[way]}, {least}{work[way]} times less processor time")


def _ratios(timings: dict[str, dict[str, Any]], key: str) -> dict[str, float]:
    """How many times as much as the kernels the others took."""
    return {way: round(x[key] / timings["kernels"][key], 2) for way, x in timings.items() if way != "kernels"}


def _timed(program: Program, way: str, timeout: float, memory: float) -> dict[str, Any]:
    """Seconds and bytes of one way; what does not end well counts as having taken so long.

    Raises `CannotOpen` where it is the kernels.
    """
    with tempfile.TemporaryDirectory(prefix="mks-bench-") as folder, working(f"Compiling: {_WAYS[way]}"):
        given = Path(folder) / "program"
        given.write_bytes(pickle.dumps(program, protocol=5))
        done = run_limited([sys.executable, "-m", _MODULE, str(given), way], timeout, memory)
    stopped, reason = done.stopped or ("error" if done.status else None), ""
    if stopped == "error":
        reason = (_ERROR.findall(done.stderr) or [f"it left with status {done.status}"])[-1]
    if stopped is not None and way == "kernels":
        raise CannotOpen(f"{_WAYS[way]}: stopped, {_STOPPED[stopped]}{': ' * bool(reason)}{reason}")
    whole = {"process_s": round(done.wall_s, 3), "memory_bytes": done.memory, "stopped": stopped, "reason": reason}
    if stopped is not None:
        return {
            "lower_s": None,
            "compile_s": None,
            "total_s": whole["process_s"],
            "cpu_s": round(done.cpu_s, 3),
        } | whole
    timing: dict[str, Any] = json.loads(done.stdout)
    return timing | {"total_s": round(timing["lower_s"] + timing["compile_s"], 3)} | whole


def _of(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f}"
