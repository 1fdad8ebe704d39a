"""Lines without effect, beyond the pages of diagnostics."""

from __future__ import annotations

import pytest
from helpers.definitions import FOLDER, changed
from helpers.mdtest import cases, program

from mks.dsl.frontend import Definition, check_source
from mks.dsl.program.analysis import check_program as effects
from mks.dsl.program.analysis.check_program import check_program, idle_lines
from mks.dsl.program.lower.lower import lower
from mks.dsl.source import Source

PAGES = FOLDER.parent / "tests/dsl/diagnostics/programs.md"


def tiny() -> Definition:
    """The base program of the page."""
    files, _ = program(cases(PAGES.read_text("utf-8"))[0])
    return check_source(Source("main.mks", files["main.mks"]))


@pytest.mark.parametrize("name", ["tiny", "qwen38"])
def test_what_shows_is_what_lowering_again_finds(name: str) -> None:
    """Where a Program shows that a line has an effect, lowering without it gives another Program."""
    found = tiny() if name == "tiny" else changed(name)
    key = found.own_schedules[0]
    schedule = found.schedules[key]
    assert schedule is not None
    made = lower(schedule, found.instances[key[0]], 1)
    lines = list(effects._lines(schedule))
    showing = [line for line in lines if effects._shows(line, made)]

    assert len(lines) >= 7
    assert len(lines) - len(showing) <= 1  # nearly all need not be lowered again
    assert [line.text for line in lines if effects._same(made, line.without)] == []
    assert idle_lines(made) == []


def test_a_part_that_runs_at_other_sizes_only() -> None:
    """A line for a part that no layer runs is judged at the text's own sizes alone."""
    found = changed("qwen38", ("size layers   = 64", "size layers   = 3"))
    key = found.own_schedules[0]
    schedule, instance = found.schedules[key], found.instances[key[0]]
    assert schedule is not None

    assert check_program(schedule, instance, lines=False) == []
    assert {d.code for d in check_program(schedule, instance, lines=True)} == {"E207"}


def test_what_kernels_cannot_do_is_no_error_of_the_definition() -> None:
    """E901 belongs to `mks plan`; `mks check` says the same as a note."""
    found = changed("dspark")
    key = found.own_schedules[0]
    schedule = found.schedules[key]
    assert schedule is not None

    assert [d.code for d in check_program(schedule, found.instances[key[0]], lines=True)] == ["N901"]
