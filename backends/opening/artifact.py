"""What `mks compile` leaves in a folder for one number of rows.

`step.bin` is the executable (`aot.compiler.load`), `manifest.json` says what it is and takes, `plan.txt` and
`plan.json` are the Program in words and as data, `bill.json` is each memory's bill. The manifest is written last.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import asdict

from ...dsl.program import ir as p
from ...dsl.program.analysis.memory import Bill, Line, bill
from ...dsl.program.analysis.traffic import reads
from ...dsl.program.print.json import record
from ...dsl.program.print.text import words
from ...dsl.source import Source
from ...dsl.version import version
from ...models.packing.layout import fingerprint
from ...models.packing.manifest import self_contained, sizes
from ..pallas.aot.compiler import save
from ..pallas.aot.measure import Step
from ..pallas.cycles.bundle_cache import versions
from ..pallas.cycles.bundles import Bundles

FORMAT = 1  # raise it when folders change in a way that older readers do not see
MANIFEST, EXECUTABLE = "manifest.json", "step.bin"
PLAN_TEXT, PLAN, BILL = "plan.txt", "plan.json", "bill.json"


def definition(source: Source) -> dict[str, Any]:
    """A definition's name and text, with what it uses in the place of its `use` lines."""
    return {"name": Path(source.name).name, "definition": self_contained(source)}


def write_step(folder: Path, step: Step, lowered: float) -> dict[str, Any]:
    """Write executable, plan and bill; what the manifest says of them. `lowered` are seconds spent on the Program.

    Times are in seconds of wall time, bytes are those of one core. `read_bytes` are what a step reads, its padding in
    lines of its own; `peak_memory_bytes` is this process's so far.
    """
    folder.mkdir(parents=True, exist_ok=True)
    program, compiled_step, charged = step.program, step.compiled, bill(step.program)
    (folder / MANIFEST).unlink(missing_ok=True)  # of an earlier run, to which the rest no longer belongs
    executable = save(compiled_step, folder / EXECUTABLE)
    (folder / PLAN_TEXT).write_text(words(program) + "\n", "utf-8")
    _write(folder / PLAN, {"schedules": [record(program)]})
    _write(folder / BILL, _bill(charged))
    moved = {line.name: line.bytes for line in reads(program)}
    return identity(program) | {
        "versions": versions(),
        "lower_s": round(lowered + compiled_step.lower_s, 3),
        "compile_s": round(compiled_step.compile_s, 3),
        "peak_memory_bytes": _peak(),
        "executable_bytes": executable,
        "vmem_bill_bytes": charged.total,
        "vmem_compiler_bytes": step.vmem,
        "hbm_bytes": step.hbm,
        "read_bytes": moved | {"total": sum(moved.values())},
        "copies": [],  # with any there is no step
        "bundles": None,
    }


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """The last file of a folder."""
    part = folder / f"{MANIFEST}.part"
    _write(part, {"format": FORMAT, "mks": version(), "status": "compiled, not run", **manifest})
    part.replace(folder / MANIFEST)


def counted(bundles: Bundles) -> dict[str, Any]:
    """What a manifest says of bundles: executed in a step with full caches, at most; by region; static ones."""
    return {
        "bundles": bundles.total,
        "bundles_static": bundles.static,
        "bundles_exact": bundles.exact,
        "bundles_by_region": [
            {"name": row.name, "kind": row.kind, "depth": row.depth, "bundles": row.bundles, "times": row.times}
            for row in bundles.rows
        ],
    }


def identity(program: p.Program) -> dict[str, Any]:
    """What a step is of and for; steps that agree in it, and in the definition, are alike."""
    schedule, instance = program.schedule, program.instance
    return {
        "model": schedule.model.name,
        "schedule": schedule.name,
        "dtype": instance.working,
        "sizes": sizes(instance),
        "rows": program.rows,
        "consecutive": program.consecutive,
        "context": schedule.context,
        "target": schedule.target.name,
        "topology": list(schedule.topology),
        "mesh": dict(schedule.mesh),
        "cores": schedule.cores,
        "layout": fingerprint(program),
    }


def _bill(charged: Bill) -> dict[str, Any]:
    memories = {
        "vmem": charged.vmem,
        "vmem_passing": charged.passing,
        "smem": charged.smem,
        "semaphores": charged.semaphores,
        "hbm": charged.hbm,
    }
    return {
        "rows": charged.rows,
        "vmem_bytes": charged.total,
        "vmem_limit_bytes": charged.limit,
        "smem_bytes": charged.scalars,
        "smem_limit_bytes": charged.smem_limit,
        "hbm_bytes": charged.held,
        "hbm_limit_bytes": charged.hbm_limit,
    } | {name: [_line(line) for line in lines] for name, lines in memories.items()}


def _line(line: Line) -> dict[str, Any]:
    return asdict(line, filter=lambda field, _: field.name not in ("span", "of"))


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


def _peak() -> int:
    """The most memory that this process has held, in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
