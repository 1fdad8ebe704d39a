"""A process that may take so long and so much memory, and what it took."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import frozen

_EVERY = 0.02  # seconds between looks


@frozen
class ProcessResult:
    """What a process wrote and took: seconds of wall time and of all cores, the most bytes of memory that it held.

    `status` is what it left with; `stopped` says what it had too much of, `time` or `memory`, `""` if it ended itself.
    """

    stdout: str
    stderr: str
    status: int
    stopped: str
    wall_s: float
    cpu_s: float
    memory: int


def run_limited(command: Sequence[str], seconds: float, memory: float) -> ProcessResult:
    """Run a command until it ends, or has taken so many seconds or bytes."""
    with TemporaryDirectory(prefix="mks-limited-") as name:
        out, err = Path(name) / "out", Path(name) / "err"
        begun, stopped, most = time.perf_counter(), "", 0
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(command, stdout=stdout, stderr=stderr)
        try:
            while True:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                wall = time.perf_counter() - begun
                if pid:
                    break
                most = max(most, _peak_memory(process.pid))
                if not stopped:
                    stopped = "time" if wall > seconds else "memory" if most > memory else ""
                    if stopped:
                        process.kill()
                time.sleep(_EVERY)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            if process.returncode is None:
                process.kill()
                process.wait()
        return ProcessResult(
            out.read_text("utf-8", "replace"),
            err.read_text("utf-8", "replace"),
            process.returncode,
            stopped,
            wall,
            usage.ru_utime + usage.ru_stime,
            most or _bytes(usage.ru_maxrss),
        )


def _peak_memory(pid: int) -> int:
    """The most bytes that a process has held in memory so far; 0 where the system does not tell.

    What Linux tells at the end counts the process that started it too, as one begins with the memory of the other.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def _bytes(most: int) -> int:
    return most if sys.platform == "darwin" else most * 1024
