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
        parts.append(
            {
                "part": part,
                "layers": len(program.layers_of(part)),
                "compared": len(compared),
                "ok": part not in verified.red,
                "worst": where | _numbers(worst.own),
                "carried": None if carried is None else _numbers(carried),
            }
        )
    ids = [
        {
            "step": c.step,
            "row": c.row,
            "token": c.token,
            "position": c.position,
            "kernel": c.kernel,
            "reference": c.reference,
            "ok": c.agrees,
        }
        for c in verified.choices
    ]
    return {
        "model": program.schedule.model.name,
        "schedule": program.schedule.name,
        "cores": program.schedule.cores,
        "rows": program.rows,
        "dtype": program.instance.working,
        "interpreted": interpreted,
        "corrupt": corrupt,
        "limits": _numbers(verified.limits),
        "parts": parts,
        "ids": ids,
        "red": list(verified.red),
        "ok": verified.ok,
    }


def show(program: Program, verified: Verified, result: dict[str, Any]) -> None:
    """Print the worst of each part, the ids that differ, and where in the definition parts stand that do."""
    from rich.console import Console
    from rich.table import Table

    out = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    table = Table("part", "layers", "cosine", "largest", "rms", "worst", "rms of all so far", "", box=None)
    for part in result["parts"]:
        worst, carried = part["worst"], part["carried"]
        layer = "" if worst["layer"] is None else f" in layer {worst['layer']}"
        table.add_row(
            part["part"],
            str(part["layers"] or ""),
            _shown(worst["cosine"], ".9f"),
            _shown(worst["largest"], ".1e"),
            _shown(worst["rms"], ".1e"),
            f"{worst['value']}{layer}, step {worst['step']}, row {worst['row']}",
            "" if carried is None else _shown(carried["rms"], ".1e"),
            "[green]same[/]" if part["ok"] else "[bold red]differs[/]",
        )
    out.print(table)
    for choice in result["ids"]:
        if not choice["ok"]:
            out.print(
                f"step {choice['step']}, row {choice['row']}: the kernel chooses {choice['kernel']}, the "
                f"reference {choice['reference']}",
                style="red",
            )
    same, cores = sum(choice["ok"] for choice in result["ids"]), result["cores"]
    out.print(
        f"{'interpreted' if result['interpreted'] else 'compiled'} for {cores} core{'s' * (cores > 1)}, rows "
        f"{result['rows']}, {result['dtype']}: {len(verified.comparisons)} values compared in "
        f"{result['seconds']:.1f} s; {same} of {len(result['ids'])} ids are the reference's"
    )
    for name in result["red"]:
        stated = program.instance.model.parts.get(name)
        at = (
            ""
            if stated is None
            else f" ({stated.span.source.name}:{stated.span.source.position(stated.span.start)[0]})"
        )
        out.print(f"`{name}`{at} differs from the reference", style="bold red")


def _shown(value: float | None, how: str) -> str:
    return "none" if value is None else format(value, how)


def _carried(verified: Verified, part: str) -> Errors | None:
    """The worst of what adds up."""
    errors = [c.carried for c in verified.by_part()[part] if c.carried is not None]
    return max(errors, key=lambda e: math.inf if math.isnan(e.rms) else e.rms, default=None)


def _numbers(errors: Errors) -> dict[str, float | None]:
    numbers = {"cosine": errors.cosine, "largest": errors.largest, "rms": errors.rms}
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}
