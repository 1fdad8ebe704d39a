"""Counting executed bundles from the compiler's schedules of small kernels."""

import os
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from helpers.counted import BLOCKS, HEADS, LAYERS, SLOTS

from mks.backends.pallas.cycles.bundles import UncountableError, count, dump
from mks.backends.pallas.cycles.llo_schedule import regions

pytest.importorskip("libtpu")
TESTS = Path(__file__).parents[3]


def dumped(folder: Path, target: str, *names: str) -> Path:
    """The schedules of kernels of `helpers.counted`."""
    with mock.patch.dict(os.environ, PYTHONPATH=str(TESTS)):
        dump([sys.executable, "-m", "helpers.counted", target, *names], folder, timeout=2000)
    return folder


@pytest.fixture(scope="module")
def schedules(tmp_path_factory) -> Path:
    """The schedules of all kernels, for v7x."""
    folder = tmp_path_factory.mktemp("schedules")
    return dumped(folder, "tpu7x", "straight", "ten", "thousand", "nested", "choice", "twice", "ring")


def text(folder: Path, kernel: str, which: str = "plain") -> str:
    """One schedule as it is written."""
    [path] = (p for p in (folder / which).glob(f"*{kernel}*-final_bundles.txt") if "analysis" not in p.name)
    return path.read_text("utf-8")


def extent(schedule: str, depth: int) -> int:
    """How many bundles there are from the first to the last that is printed at a depth of loops (of one loop)."""
    shown = re.findall(r"^ *(?:0x[0-9a-f]+|0) +(?:[A-Z]{2})? *: *(>*) *\{", schedule, re.MULTILINE)
    inside = [at for at, marks in enumerate(shown) if len(marks) >= depth]
    return inside[-1] - inside[0] + 1


@pytest.mark.parametrize("kernel", ["straight", "ten", "thousand", "nested", "choice", "ring"])
def test_every_bundle_is_in_one_region(schedules, kernel):
    """The regions' own bundles add up to what the compiler says that it scheduled."""
    [path] = (schedules / "plain").glob(f"*{kernel}*schedule-analysis_final_bundles.txt")
    said = re.search(r"total scheduled bundles: +(\d+)", path.read_text("utf-8"))
    assert said is not None
    found = regions(text(schedules, kernel))

    assert sum(region.own for region in found.all) == int(said[1])
    assert all(region.own >= 0 for region in found.all)


def test_straight_code(schedules):
    """A kernel without loops executes each bundle once."""
    found = count(schedules, kernel="straight")

    assert found.total == found.static
    assert found.by_region == {"kernel": found.total}


def test_one_loop(schedules):
    """The body counts as often as it runs: two kernels that differ in the count alone differ by so many bodies."""
    ten, thousand = count(schedules, kernel="ten"), count(schedules, kernel="thousand")
    body = extent(text(schedules, "ten"), 1)

    assert ten.static == thousand.static
    assert body > 8  # eight registers are written, two a bundle at most, and the loop is counted
    assert ten.total == ten.static - body + 10 * body
    assert thousand.total - ten.total == 990 * body
    assert ten.by_region == {"kernel": ten.static - body, "body": 10 * body}
    assert ten.exact


def test_nested_loops(schedules):
    """Seven times five times the inner body, and five times what the outer one has besides."""
    found = count(schedules, kernel="nested")
    outer, inner = (extent(text(schedules, "nested"), depth) for depth in (1, 2))

    rows = {row.name: row for row in found.rows}
    assert (rows["outer"].times, rows["inner"].times) == (5, 35)
    assert rows["inner"].bundles == inner
    delay = rows["outer"].bundles - (outer - inner)  # the branch and what is in its delay, printed one level up
    assert 1 <= delay <= 8
    assert found.total == found.static - outer - delay + 5 * (outer + delay - inner) + 5 * 7 * inner


def test_branches(schedules):
    """A branch counts as often as it is said to run; unsaid, as often as what it is in."""
    every = count(schedules, {"search": 4}, "choice")
    some = count(schedules, {"search": 4, "sines": 10, "roots": 5, "logs": 1, "rarely": 0}, "choice")

    own = {row.name: row.bundles for row in every.rows}
    assert own["sines"] > own["roots"] > 20
    assert every.by_region["sines"] == 16 * own["sines"]
    assert every.by_region["rarely"] == own["rarely"] > 20
    assert not {row.name: row.known for row in every.rows}["sines"]
    assert {row.name: row.known for row in some.rows}["sines"]
    saved = 6 * own["sines"] + 11 * own["roots"] + 15 * own["logs"] + own["rarely"]
    assert every.total - some.total == saved


def test_what_may_be_a_loop_or_a_branch(schedules):
    """Regions of one scope share what is said of it; a loop between constants counts itself."""
    found = count(schedules, {"search": 4}, "choice", {"sines": 10, "absent": 1000})
    every = count(schedules, {"search": 4}, "choice")
    shared = count(schedules, kernel="twice", small={"piece": 20})

    own = {row.name: row.bundles for row in every.rows}
    assert every.total - found.total == 6 * own["sines"]
    loops = [row for row in shared.rows if row.name == "piece"]
    assert [row.times for row in loops] == [10, 10, 3]
    assert shared.total == shared.static + sum((row.times - 1) * row.bundles for row in loops)


def test_layers_with_a_ring(schedules):
    """Everything at once: layers of two kinds, a ring of tiles with waits, a cache of as many tiles as are said."""
    full, tiles = 16, 32
    trips = {"full": full, "linear": LAYERS - full, "cache": full * tiles}
    found = count(schedules, trips, "ring")

    rows = {row.name: row for row in found.rows}
    assert rows["layer"].times == LAYERS
    assert rows["columns"].times == LAYERS * BLOCKS
    assert rows["heads"].times == (LAYERS - full) * HEADS
    assert rows["cache"].times == full * tiles
    assert [row.times for row in found.rows if row.kind == "loop"][-1] == SLOTS  # from g to g + 8: not constants
    assert 128 <= rows["columns"].bundles <= 300  # 256 registers of weights, one a bundle for each of two MXUs
    assert found.total == sum(row.bundles * row.times for row in found.rows)
    more = count(schedules, trips | {"cache": full * tiles + 1}, "ring")
    assert more.total - found.total == rows["cache"].bundles


def test_what_cannot_be_counted(schedules):
    """A loop that nobody knows the count of, a name that is nowhere or nothing, and a kernel that is not there."""
    for trips, kernel, message in (
        ({}, "ring", r"\(cache\) has no constant count"),
        ({}, "twice", r"\(piece\) has no constant count"),
        ({"piece": 20}, "twice", "`piece` begins in 3 regions"),
        ({"cache": 1, "halls": 1}, "ring", "no loop or branch begins a scope `halls`"),
        ({"layer": 1, "norm": 1}, "ring", "`norm`"),
        ({}, "absent", "there are: none"),
        ({}, "", "there are: choice"),
    ):
        with pytest.raises(UncountableError, match=message):
            count(schedules, trips, kernel)


def test_a_process_that_fails(tmp_path):
    """What a failing process wrote is not lost."""
    with pytest.raises(subprocess.CalledProcessError) as caught:
        dump([sys.executable, "-c", "raise SystemExit('no such kernel')"], tmp_path, timeout=600)
    assert "no such kernel" in caught.value.output


@pytest.mark.slow
@pytest.mark.parametrize("target", ["v5e", "v5p", "v6e"])
def test_other_targets(tmp_path, target):
    """The schedules of the other chips have the same regions."""
    trips = {"full": 16, "linear": 48, "cache": 512}
    found = count(dumped(tmp_path, target, "ring"), trips, "ring")

    rows = {row.name: row for row in found.rows}
    assert (rows["layer"].times, rows["columns"].times, rows["heads"].times) == (64, 256, 288)
    assert [row.times for row in found.rows if row.kind == "loop"][-1] == SLOTS
    assert found.exact
