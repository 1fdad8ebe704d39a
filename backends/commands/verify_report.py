"""What `mks verify` found: a table for people, an object for programs."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...dsl.program.ir import Program
    from ..pallas.diff_test.report import Errors, Verified


def described(program: Program, verified: Verified, *, interpreted: bool, corrupt: str | None) -> dict[str, Any]:
    """As JSON holds it; what is no number is `null`."""
    parts = []
    for part, compared in verified.by_part().items():
        worst, carried = verified.worst(part), _carried(verified, part)
        where = {"value": worst.value, "layer": worst.layer, "step": worst.step, "row": worst.row}
        parts.append({
            "part": part, "layers": len(program.layers_of(part)),
            "compared": len(compared), "ok": part not in verified.red, "worst": where | _numbers(worst.own),
            "carried": None if carried is None else _numbers(carried),
        })  # fmt: skip
    ids = [{"step": c.step, "row": c.row, "token": c.token, "position": c.position, "kernel": c.kernel,
            "reference": c.reference, "ok": c.agrees} for c in verified.choices]  # fmt: skip
    return {
        "model": program.schedule.model.name, "schedule": program.schedule.name, "cores": program.schedule.cores,
        "rows": program.rows, "dtype": program.instance.working, "interpreted": interpreted, "corrupt": corrupt,
        "limits": _numbers(verified.limits), "parts": parts, "ids": ids, "red": list(verified.red), "ok": verified.ok,
    }  # fmt: skip


def show(program: Program, verified: Verified, said: dict[str, Any]) -> None:
    """Print the worst of each part, the ids that differ, and where in the definition parts stand that do."""
    from rich.console import Console
    from rich.table import Table

    out = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    table = Table("part", "layers", "cosine", "largest", "rms", "worst", "rms of all so far", "", box=None)
    for part in said["parts"]:
        worst, carried = part["worst"], part["carried"]
        layer = "" if worst["layer"] is None else f" in layer {worst['layer']}"
        table.add_row(
            part["part"], str(part["layers"] or ""), _shown(worst["cosine"], ".9f"), _shown(worst["largest"], ".1e"),
            _shown(worst["rms"], ".1e"), f"{worst['value']}{layer}, step {worst['step']}, row {worst['row']}",
            "" if carried is None else _shown(carried["rms"], ".1e"),
            "[green]same[/]" if part["ok"] else "[bold red]differs[/]",
        )  # fmt: skip
    out.print(table)
    for choice in said["ids"]:
        if not choice["ok"]:
            out.print(f"step {choice['step']}, row {choice['row']}: the kernel chooses {choice['kernel']}, the "
                      f"reference {choice['reference']}", style="red")  # fmt: skip
    same, cores = sum(choice["ok"] for choice in said["ids"]), said["cores"]
    out.print(f"{'interpreted' if said['interpreted'] else 'compiled'} for {cores} core{'s' * (cores > 1)}, rows "
              f"{said['rows']}, {said['dtype']}: {len(verified.comparisons)} values compared in "
              f"{said['seconds']:.1f} s; {same} of {len(said['ids'])} ids are the reference's")  # fmt: skip
    for name in said["red"]:
        found = program.instance.model.parts.get(name)
        at = "" if found is None else f" ({found.span.source.name}:{found.span.source.position(found.span.start)[0]})"
        out.print(f"`{name}`{at} differs from the reference", style="bold red")


def _shown(value: float | None, how: str) -> str:
    return "none" if value is None else format(value, how)


def _carried(verified: Verified, part: str) -> Errors | None:
    """The worst of what adds up."""
    found = [c.carried for c in verified.by_part()[part] if c.carried is not None]
    return max(found, key=lambda e: math.inf if math.isnan(e.rms) else e.rms, default=None)


def _numbers(errors: Errors) -> dict[str, float | None]:
    found = {"cosine": errors.cosine, "largest": errors.largest, "rms": errors.rms}
    return {name: value if math.isfinite(value) else None for name, value in found.items()}
