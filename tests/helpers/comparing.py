"""Draws compared with the reference, part by part, as `mks verify` does: one after the other, in a child process.

`python -m helpers.comparing FAULT` reads a draw from each line, and writes what came of it, both as JSON. A fault is
one of `helpers.faults`, which the child makes first.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Literal

if __name__ == "__main__":
    os.environ["JAX_PLATFORMS"] = "cpu"
    # Most of the time XLA compiles: it need not try hard.
    os.environ["XLA_FLAGS"] = (
        "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0 "
        "--xla_llvm_disable_expensive_passes=true"
    )

from attrs import asdict, frozen
from helpers.drawing import Drawn

if TYPE_CHECKING:
    from mks.dsl.program.ir import Program

TESTS = Path(__file__).parents[1]
# Of the other outcomes none is allowed.
type Kind = Literal["same", "refused", "differs", "crashes", "hangs", "dies"]


@frozen
class Outcome:
    """What came of a draw: all parts are the `same`, it was `refused` by a diagnostic, or something is wrong.

    `said` are the diagnostics, the parts that differ, or the exception; `seconds` are of processor time.
    """

    seed: int
    kind: Kind
    said: str = ""
    seconds: float = 0


def compare(draws: Iterable[Drawn], fault: str = "", seconds: float = 600) -> Iterator[Outcome]:
    """What comes of each; one that takes longer than `seconds` hangs."""
    child = None
    try:
        for drawn in draws:
            child = _child(fault) if child is None else child
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(json.dumps(asdict(drawn) | {"constructs": sorted(drawn.constructs)}) + "\n")
            child.stdin.flush()
            ready, _, _ = select.select([child.stdout], [], [], seconds)
            line = child.stdout.readline() if ready else ""
            if line:
                yield Outcome(**json.loads(line))
                continue
            _end(child)
            child = None
            yield Outcome(drawn.seed, "dies" if ready else "hangs")
    finally:
        if child is not None:
            _end(child)


def _end(child: subprocess.Popen[str]) -> None:
    child.kill()
    # Closes the pipes, and waits.
    with child, contextlib.suppress(OSError):
        pass


def _child(fault: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "helpers.comparing", fault]
    return subprocess.Popen(line, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


# What follows runs in the child.


def main() -> None:
    """One draw after the other."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed
    if sys.argv[1]:
        from helpers.faults import FAULTS

        FAULTS[sys.argv[1]]()
    for line in sys.stdin:
        begun, drawn = process_time(), Drawn(**json.loads(line))
        kind, said = _outcome(drawn)
        found = {"seed": drawn.seed, "kind": kind, "said": said, "seconds": round(process_time() - begun, 2)}
        answers.write(json.dumps(found) + "\n")
        answers.flush()


def _outcome(drawn: Drawn) -> tuple[Kind, str]:
    import jax

    try:
        program = drawn.lowered(traced=True)
        if isinstance(program, tuple):
            return "refused", "; ".join(f"{d.code}: {d.message}" for d in program)
        return _compared(drawn, program)
    except Exception as e:
        return "crashes", f"{type(e).__name__}: {e}"[:2000]
    finally:
        jax.clear_caches()


def _compared(drawn: Drawn, program: Program) -> tuple[Kind, str]:
    from functools import partial

    from helpers.cases import drawn_weights, values

    from mks.backends import reference
    from mks.backends.pallas.diff_test.compare import verify
    from mks.backends.pallas.runtime.device import machine
    from mks.models.packing.operands import operand

    model = drawn_weights(program.schedule, program.instance)
    weights = reference.load(program.instance, values(model))
    steps = [(drawn.tokens, drawn.positions)]
    found = verify(program, partial(operand, program, model.stored), machine(program.schedule), weights, steps)
    if found.ok:
        return "same", ""
    said = []
    for part in found.red:
        bad = [c for c in found.by_part()[part] if not c.own.within(found.limits)]
        worst = found.worst(part)
        names = ", ".join(sorted({c.value for c in bad}))
        said.append(f"{part}: {names} (worst {worst.value} in layer {worst.layer}, row {worst.row}: {worst.own})")
    said += [f"row {c.row} chose {c.kernel}, not {c.reference}" for c in found.choices if not c.agrees]
    return "differs", "; ".join(said)


if __name__ == "__main__":
    main()
