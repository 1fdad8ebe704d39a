"""A step's bundles, from schedules that other processes make. As a program: compile a pickled Program."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

from ....dsl.diagnostics import Diagnostic
from ....dsl.program import ir as p
from ..emit.scopes import small, trips
from .bundle_cache import keep
from .bundles import Bundles, UncountableError, count, dump

_TIMEOUT = 600.0


def count_step(program: p.Program, timeout: float = _TIMEOUT) -> Bundles | Diagnostic:
    """What a step executes, with full caches; takes two processes, each several times as long as compiling.

    It is kept, and `bundle_cache.kept` has it from then on.

    W501 where the schedule cannot be counted, or a process fails or takes longer than `timeout`, in seconds.
    """
    with tempfile.TemporaryDirectory(prefix="mks-bundles-") as name:
        folder = Path(name)
        given = folder / "program"
        given.write_bytes(pickle.dumps(program, protocol=5))
        try:
            dump([sys.executable, "-m", __name__, str(given)], folder, timeout)
            kernel = f"{program.schedule.model.name}_{program.schedule.name}"
            bundles = count(folder, trips(program), kernel, small(program))
        except UncountableError as e:
            return _uncounted(program, str(e))
        except subprocess.CalledProcessError as e:
            return _uncounted(program, str(e.output).strip().rpartition("\n")[2])
        except subprocess.TimeoutExpired:
            return _uncounted(program, f"no schedule after {timeout:g} s")
    keep(program, bundles)
    return bundles


def _uncounted(program: p.Program, why: str) -> Diagnostic:
    return Diagnostic(
        "W501",
        f"the bundles of `{program.schedule.name}` cannot be counted",
        notes=(why,),
        helps=("without `--bundles` a step is compiled and not counted",),
    )


if __name__ == "__main__":
    from ..aot.measure import compile_step

    compile_step(pickle.loads(Path(sys.argv[1]).read_bytes()))
