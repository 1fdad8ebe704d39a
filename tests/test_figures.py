"""Figures of `docs/performance.md` that take no compiler are those that the tools give."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from helpers import readme

from mks.dsl.commands import cli

MIB = 1 << 20
ROWS = (1, 8)
# A model's column in the first table, and the position of its times.
COLUMNS = {"qwen38": (1, 4095), "kimi_k3": (2, 1151)}


def lines(section: str) -> list[list[str]]:
    """The cells of a section's first table."""
    text = (readme.ROOT / "docs" / "performance.md").read_text("utf-8")
    table = text.partition(f"## {section}\n")[2].partition("\n## ")[0]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in table.splitlines() if line.startswith("|")]


def numbers(cell: str) -> list[float]:
    """The numbers in a cell."""
    return [float(each) for each in re.findall(r"\d+\.\d+", cell)]


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """What a command prints as JSON, of its only schedule."""
    assert cli.main([*arguments, "--json"]) == 0
    (schedule,) = json.loads(capsys.readouterr().out)["schedules"]
    return dict(schedule)


@pytest.mark.parametrize("model", COLUMNS)
def test_bills(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of one row and of eight."""
    column, _ = COLUMNS[model]
    bills = {each["rows"]: each["vmem_bytes"]["total"] / MIB for each in said(capsys, "check", model)["rows"]}
    rows = [line[column] for line in lines("A decode step") if "MiB" in line[column]]
    assert [numbers(cell)[0] for cell in rows] == [pytest.approx(bills[n], abs=0.006) for n in ROWS]


@pytest.mark.thorough
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("model", COLUMNS)
def test_steps_by_op(model: str, rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Predicted, at the positions that the page names."""
    column, position = COLUMNS[model]
    found = said(capsys, "plan", model, "--rows", str(rows), "--time", "--position", str(position))
    (cell,) = [line[column] for line in lines("A decode step") if line[3] == "predicted by op"]
    assert found["compute"] == "estimated by op"
    assert numbers(cell)[ROWS.index(rows)] == pytest.approx(found["step_seconds"] * 1e3, abs=0.006)
