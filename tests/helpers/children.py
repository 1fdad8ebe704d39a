"""Child processes whose limits are in seconds of a processor: a machine that is busy with other things fails none.

`run` is `subprocess.run`; `call` has a function computed by a child that stays for the next one, as JAX takes seconds
to start. `python -m helpers.children FD` is that child.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import resource
import select
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, TextIO

from attrs import define, field

TESTS = Path(__file__).parents[1]
# Longer than anything takes that gets on, whatever else the machine does.
PATIENCE = 1500.0
# A child hangs if in each of so many seconds it uses no more than a little of one, and no thread waits for a processor.
_QUIET, _WORKS = 8, 0.02
# A child that holds more is not used again.
_MOST_BYTES = 3 << 30
_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


class Failed(Exception):
    """What a call raised in the child, as text; or what the child said last."""


class Hangs(Exception):
    """A call took longer than it may, or its threads all wait."""


def run(line: Sequence[Any], seconds: float = 60, **options: Any) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run`, of which each process may use so many seconds of a processor; SIGXCPU ends it behind them."""
    given, check = options.pop("input", None), options.pop("check", False)
    if options.pop("capture_output", False):
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if given is not None:
        options["stdin"] = subprocess.PIPE
    with subprocess.Popen(list(map(str, line)), **options) as child:
        _limit(child.pid, seconds)
        try:
            out, err = child.communicate(given, timeout=PATIENCE)
        finally:
            child.kill()
    done = subprocess.CompletedProcess(child.args, child.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def _limit(pid: int, seconds: float) -> None:
    """Processes that it starts have the same limit, each of its own; only Linux can limit others."""
    if hasattr(resource, "prlimit"):
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_CPU, (round(seconds) + 1, round(seconds) + 10))


@define(eq=False)
class _Child:
    """A process that computes what it is told: lines of JSON, and lines of JSON back."""

    process: subprocess.Popen[str]
    answers: TextIO
    said: TextIO
    clock: float = field(factory=monotonic)
    quiet: int = 0
    before: float = 0.0

    def used(self) -> float:
        """Seconds of a processor so far; by the clock where the system does not tell."""
        try:
            words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return monotonic()
        return (int(words[11]) + int(words[12])) / _TICKS

    def bytes(self) -> int:
        """What it holds."""
        try:
            return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * _PAGE
        except OSError:
            return 0

    def waits(self) -> bool:
        """Whether it has done nothing for a while, and wants no processor; to be asked often."""
        if monotonic() - self.clock < 1:
            return False
        used, self.clock = self.used(), monotonic()
        self.quiet = self.quiet + 1 if used - self.before < _WORKS and not self._wants() else 0
        self.before = used
        return self.quiet >= _QUIET

    def _wants(self) -> bool:
        """Whether a thread runs, would run, or reads from a disk."""
        try:
            threads = list(Path(f"/proc/{self.process.pid}/task").iterdir())
            return any(t.joinpath("stat").read_text().rpartition(")")[2].split()[0] in "RD" for t in threads)
        except OSError:
            return True

    def last_words(self) -> str:
        """The end of what it wrote."""
        self.said.seek(0)
        return self.said.read()[-3000:]

    def stop(self) -> None:
        """End it, at once."""
        self.process.kill()
        self.process.communicate()
        self.answers.close()
        self.said.close()


# Those that live; and of them those that wait for something to do, by devices and how XLA compiles.
_living: list[_Child] = []
_idle: dict[tuple[int, bool], list[_Child]] = {}


def call(
    function: str,
    *arguments: Any,
    seconds: float = 120,
    devices: int = 1,
    optimised: bool = False,
    progress: Callable[[], object] = lambda: None,
) -> Any:
    """What `module:function` returns for arguments that are JSON, as is the result, with so many devices or more.

    It may take `seconds` of a processor between two changes of `progress`. XLA's programs are compiled quickly, or
    `optimised`. Raises `Failed` or `Hangs`; behind the latter the next call has a new child.
    """
    key = 8 if devices <= 8 else devices, optimised
    idle = _idle.setdefault(key, [])
    child = idle.pop() if idle else _start(*key)
    child.quiet, seen, start = 0, progress(), child.used()
    print(json.dumps([function, arguments]), file=child.process.stdin, flush=True)
    while not select.select([child.answers], [], [], 0.25)[0]:
        now = progress()
        if now != seen:
            seen, start = now, child.used()
        if child.waits() or child.used() - start > seconds:
            _end(child)
            raise Hangs(f"{function} took {seconds} s of a processor" if child.quiet < _QUIET else f"{function} waits")
    answer = child.answers.readline()
    if not answer:
        words = child.last_words()
        _end(child)
        raise Failed(f"the child ended with {child.process.returncode}: {words}")
    if child.bytes() > _MOST_BYTES:
        _end(child)
    else:
        idle.append(child)
    found = json.loads(answer)
    if "error" in found:
        raise Failed(found["error"])
    return found["result"]


def _start(devices: int, optimised: bool) -> _Child:
    read, write = os.pipe()
    flags = f"--xla_force_host_platform_device_count={devices}"
    if not optimised:
        flags += " --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    settings = {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": flags,
        "TPU_SKIP_MDS_QUERY": "1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }
    said = tempfile.TemporaryFile("w+")  # noqa: SIM115, as long as the child
    process = subprocess.Popen(
        [sys.executable, "-m", "helpers.children", str(write)],
        cwd=TESTS,
        text=True,
        env=os.environ | settings,
        stdin=subprocess.PIPE,
        stdout=said,
        stderr=said,
        pass_fds=[write],
    )
    os.close(write)
    child = _Child(process, os.fdopen(read), said)
    _living.append(child)
    return child


def _end(child: _Child) -> None:
    child.stop()
    _living.remove(child)


def used() -> float:
    """Seconds of a processor that this process and its children used, those that still live included."""
    times = os.times()
    return sum(times[:4]) + sum(child.used() for child in _living)


@atexit.register
def stop() -> None:
    """End all children."""
    while _living:
        _end(_living[0])
    _idle.clear()


def _forget() -> None:
    """Leave nothing of a call for the next: a kernel that failed would fail whatever is interpreted after it."""
    import jax
    from jax.experimental.pallas import tpu as pltpu

    with contextlib.suppress(Exception):
        jax.effects_barrier()
    pltpu.reset_tpu_interpret_mode_state()


def main(answers: int) -> None:
    """Compute what standard input says, until it ends."""
    from mks.backends.reference import keep_compiled

    keep_compiled()
    with os.fdopen(answers, "w") as out:
        for line in sys.stdin:
            name, arguments = json.loads(line)
            module, _, function = name.partition(":")
            try:
                found = {"result": getattr(importlib.import_module(module), function)(*arguments)}
            except Exception:
                found = {"error": traceback.format_exc()}
            _forget()
            print(json.dumps(found), file=out, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
