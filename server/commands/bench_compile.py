"""`mks bench compile`."""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...dsl.commands.argtypes import number
from ...dsl.report.capacity import lower_fitting
from .compile import add_choice, chosen, parse
from .find import CannotOpen
from .guard import command_parser, guarded
from .terminal import working

if TYPE_CHECKING:
    from ...dsl.program.ir import Program

_ABOUT = """\
Compile a model's decode step by its schedule's kernels, and as ordinary XLA programs made
of the reference backend: each layer written out, and equal layers as loops. All are sharded
alike and compiled for the same devices, one after the other, each in a process of its own.
"""
_EXAMPLES = """\
examples:
  mks bench compile
  mks bench compile qwen38 --rows 8 --json
"""
_MODULE = "mks.backends.pallas.ordinary"
_WAYS = {"kernels": "kernels of mks", "unrolled": "XLA, layers unrolled", "scanned": "XLA, layers in loops"}


def bench_compile(argv: list[str]) -> int:
    """Compare times of compilation; the exit status: 0, 1 for errors, 2 for wrong usage."""
    return guarded(partial(parse, _parser()), argv, _bench)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("bench compile", _ABOUT, _EXAMPLES)
    add_choice(parser, model="qwen38")
    add = parser.add_argument
    add("--timeout", metavar="S", type=number(1, 86400), default=300.0, help="stop each after so long; what was "
        "stopped took longer than that (default: %(default)g)")  # fmt: skip
    add("--json", action="store_true", help="print one JSON object instead of a table")
    return parser


def _bench(args: argparse.Namespace) -> None:
    _, schedule, instance = chosen(args)
    rows = schedule.rows[0]
    program = lower_fitting(schedule, instance, rows)
    found = {way: _timed(program, way, args.timeout) for way in _WAYS}
    ours = found["kernels"]["total_s"]
    ratios = {way: round(x["total_s"] / ours, 2) for way, x in found.items() if way != "kernels"}
    shape = "x".join(map(str, schedule.topology))
    if args.json:
        said = {"model": schedule.model.name, "schedule": schedule.name, "rows": rows, "context": schedule.context,
                "target": schedule.target.name, "topology": shape, **found, "times_faster": ratios}  # fmt: skip
        print(json.dumps(said, indent=1))
        return
    print(f"{schedule.model.name}, {schedule.name}: {schedule.target.name} {shape}, rows {rows}, seconds\n")
    print(f"{'':22}{'lower':>9}{'compile':>9}{'total':>9}{'process':>9}")
    for way, x in found.items():
        total = f"{'over ' * x['stopped']}{x['total_s']:.2f}"
        print(f"{_WAYS[way]:22}{_of(x['lower_s']):>9}{_of(x['compile_s']):>9}{total:>9}{x['process_s']:>9.2f}")
    print("\n" + ", ".join(f"{ratio} times faster than {_WAYS[way]}" for way, ratio in ratios.items()))


def _timed(program: Program, way: str, timeout: float) -> dict[str, Any]:
    """Seconds of one way; what does not end in time counts as having taken so long. Raises `CannotOpen`."""
    with tempfile.TemporaryDirectory(prefix="mks-bench-") as folder, working(f"Compiling: {_WAYS[way]}"):
        given = Path(folder) / "program"
        given.write_bytes(pickle.dumps(program, protocol=5))
        begun = time.perf_counter()
        command = [sys.executable, "-m", _MODULE, str(given), way]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            return {"lower_s": None, "compile_s": None, "total_s": timeout, "process_s": timeout, "stopped": True}
        spent = round(time.perf_counter() - begun, 3)
    if done.returncode:
        raise CannotOpen(f"{_WAYS[way]}: {(done.stderr.strip() or 'no message').splitlines()[-1]}")
    found: dict[str, Any] = json.loads(done.stdout)
    total = round(found["lower_s"] + found["compile_s"], 3)
    return found | {"total_s": total, "process_s": spent, "stopped": False}


def _of(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f}"
