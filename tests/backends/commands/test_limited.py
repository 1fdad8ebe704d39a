"""Processes with a limit, and how compilers are compared with it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from mks.backends.commands import bench_compile
from mks.backends.commands.limited_process import ProcessResult, run_limited
from mks.server.commands.bench_command import bench

GIB = 1 << 30
MIB = 1 << 20


def python(text: str, seconds: float = 60, memory: float = 2 * GIB) -> ProcessResult:
    """What a line of Python takes."""
    return run_limited([sys.executable, "-c", text], seconds, memory)


def test_a_process_that_ends() -> None:
    """What it wrote, its status, and what it took: not what it slept, nor what the process held that started it."""
    held = bytearray(b"1") * (500 * MIB)
    busy = "import time; a = bytearray(200 << 20); del a\nwhile time.process_time() < 0.5: pass\ntime.sleep(0.7)"
    found = python(busy + "\nimport sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")

    assert (found.stdout, found.stderr, found.status, found.stopped) == ("out\n", "err\n", 3, "")
    assert 0.5 <= found.cpu_s < found.wall_s
    assert found.wall_s > 1.2
    assert 200 * MIB < found.memory < 400 * MIB < len(held)


def test_a_process_that_takes_too_long() -> None:
    """It is stopped, and what it had done is known."""
    begun = time.monotonic()
    found = python("print('begun', flush=True)\nwhile True: pass", seconds=1)

    assert time.monotonic() - begun < 100
    assert (found.stopped, found.stdout) == ("time", "begun\n")
    assert found.wall_s > 1
    assert found.cpu_s > 0


def test_a_process_that_takes_too_much_memory() -> None:
    """It is stopped long before its time."""
    found = python("import time; a = bytearray(b'1') * (400 << 20); time.sleep(50)", memory=300 * MIB)

    assert found.stopped == "memory"
    assert found.memory > 300 * MIB
    assert found.wall_s < 40


def test_what_a_process_writes_does_not_hold_it_up() -> None:
    """More than a pipe has room for."""
    assert len(python("print('x' * 1_000_000)").stdout) == 1_000_001


SMALL = ["compile", "smollm2", "--size", "layers=2", "--context", "256"]


def test_a_comparison(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A way that is stopped or refused took at least so long; ours must end."""
    spent = {
        "kernels": ProcessResult('{"lower_s": 1, "compile_s": 3, "cpu_s": 5}', "", 0, "", 6, 7, GIB),
        "unrolled": ProcessResult("", "", -9, "time", 100, 150, 4 * GIB),
        "scanned": ProcessResult('{"lower_s": 2, "compile_s": 6, "cpu_s": 15}', "", 0, "", 11, 17, 2 * GIB),
    }

    def run(command: list[str], seconds: float, memory: float) -> ProcessResult:
        assert (seconds, memory) == (300, 8 * GIB)
        assert Path(command[-2]).stat().st_size > 1000
        return spent[command[-1]]

    monkeypatch.setattr(bench_compile, "run_limited", run)
    assert bench(SMALL) == 0
    said = capsys.readouterr().out
    assert "at least 25.0 times faster than XLA, layers unrolled, at least 30.0 times less processor time" in said
    assert "\n2.0 times faster than XLA, layers in loops, 3.0 times less processor time" in said
    assert "XLA, layers unrolled: stopped, it took too long" in said
    (line,) = (line for line in said.splitlines() if line.startswith("XLA, layers unrolled  "))
    assert line.split()[3:] == ["-", "-", "over", "100.00", "over", "150.00", "4.00"]

    spent["scanned"] = ProcessResult("", "", -11, "", 10, 15, GIB)
    assert bench(SMALL) == 0
    said = capsys.readouterr().out
    assert "XLA, layers in loops: stopped, the compiler gave up: it left with status -11" in said
    assert "at least 2.5 times faster than XLA, layers in loops, at least 3.0 times less processor time" in said

    spent["kernels"] = ProcessResult("", "", -9, "memory", 1, 1, 9 * GIB)
    assert bench(SMALL) == 1
    assert "kernels of mks: stopped, it took too much memory" in capsys.readouterr().err
    spent["kernels"] = ProcessResult("", "a trace\nError: no luck\nSee elsewhere for more.\n", 1, "", 1, 1, GIB)
    assert bench(SMALL) == 1
    assert "kernels of mks: stopped, the compiler gave up: Error: no luck\n" in capsys.readouterr().err
