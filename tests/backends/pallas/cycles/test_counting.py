"""Counting the bundles of whole steps: loops whose length depends on layers, positions and routing.

`pytest -m slow tests/backends/pallas/cycles/test_counting.py` counts the shipped models and compares the
estimates by op.
"""

from __future__ import annotations

import pickle
import sys
from functools import cache
from pathlib import Path

import pytest
from helpers.cases import Case, lowered
from helpers.definitions import changed
from helpers.schedules import KIMI, ONE

from mks.backends.pallas.cycles.bundle_cache import kept
from mks.backends.pallas.cycles.bundles import Bundles, Row, UncountableError, count, dump
from mks.backends.pallas.cycles.counting import count_step
from mks.backends.pallas.emit.scopes import BEGINS, small, trips
from mks.backends.timeline.summary import predict
from mks.dsl.program.analysis.routing_stats import alone
from mks.dsl.program.analysis.traffic import fetched
from mks.dsl.program.ir import CacheRingRef, Program
from mks.dsl.program.lower.lower import lower

pytest.importorskip("libtpu")

SIZES = {
    "d": 256,
    "layers": 3,
    "vocab": 512,
    "block": 2,
    "heads": 2,
    "q_lora": 128,
    "kv_lora": 128,
    "nope": 64,
    "common": 64,
    "vdim": 128,
    "kda_heads": 2,
    "key": 128,
    "val": 128,
    "ffn": 256,
    "latent": 128,
    "experts": 16,
    "moe": 128,
    "top": 4,
}
ROWS = 3


@cache
def routed() -> Program:
    """A small Kimi K3: one layer with a dense MLP, two with experts, the last with attention."""
    step = (tuple(range(ROWS)), (5,) * ROWS)
    return lowered(Case("kimi_k3", (step,), ONE + KIMI, sizes=tuple(SIZES.items()), working="bf16"))


@pytest.fixture(scope="module")
def schedules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its kernel's schedules, for v5e."""
    folder = tmp_path_factory.mktemp("schedules")
    (folder / "program").write_bytes(pickle.dumps(routed(), protocol=5))
    dump([sys.executable, "-m", "mks.backends.pallas.cycles.counting", str(folder / "program")], folder, timeout=1500)
    return folder


def test_a_model_that_routes(schedules: Path) -> None:
    """Banks by layer, experts as expected on the core with most of them, rows that chose one alone, no first tokens."""
    found = count(schedules, trips(routed()), "kimi_k3", small(routed()))
    (bank,) = routed().banks.values()
    times: dict[str, list[float]] = {}
    for row in found.rows:
        times.setdefault(row.name, []).append(row.times)

    experts = 2 * fetched(routed(), bank)
    single = alone(bank.count, bank.top, ROWS)
    assert times["layers"] == [3]
    for kind in ("score", "sum"):  # of layer 0 none and one, then one and one, then one and two
        assert times[f"bank of enter, {kind}"] == [2]
        assert times[f"bank of leave, {kind}"] == [4]
    assert times[f"each of {bank.name}"] == [experts]
    assert sum(times[f"listed of {bank.name}"]) == pytest.approx(experts)
    assert times[f"one row with {bank.name}"] == pytest.approx([experts * single] * 2)
    assert times[f"rows with {bank.name}"] == pytest.approx([experts * (1 - single)] * 2)
    assert times[BEGINS] == [0]
    assert all(row.known for row in found.rows if row.kind == "loop")


def test_loops_of_which_nothing_is_said(schedules: Path) -> None:
    """Without what routing and layers say, the schedule cannot be counted, and the loop is named."""
    hints = small(routed())
    for name in ("bank of enter, score", "listed of experts moe", "each of experts moe"):
        with pytest.raises(UncountableError, match=rf"\({name}\) has no constant count"):
            count(schedules, trips(routed()), "kimi_k3", {key: value for key, value in hints.items() if key != name})
    with pytest.raises(UncountableError, match=r"\(layers\) has no constant count"):
        count(schedules, {}, "kimi_k3", hints)


@pytest.mark.slow
@pytest.mark.timeout(2000)
@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("model", ["qwen38", "kimi_k3"])
def test_shipped_schedules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: str, rows: int) -> None:
    """They are counted without marks and kept, every loop is known, and estimates by op are within a fifth of each."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = changed(model)
    (key, *_) = found.own_schedules
    schedule = found.schedules[key]
    assert schedule is not None
    made = lower(schedule, found.instances[key[0]], rows)
    counted = count_step(made, timeout=1500)

    assert isinstance(counted, Bundles), counted
    assert counted.exact
    assert all(row.known for row in counted.rows if row.kind == "loop")
    assert round(sum(row.total for row in counted.rows)) == counted.total
    assert kept(made) == counted
    compared = predict(made, savings=False, bundles=counted).counts
    assert {x.scope for x in compared} >= {"step", "layers"} | {
        name for name in made.instance.model.parts if _branch(made, name, counted.rows)
    }
    for x in compared:
        assert x.estimated == pytest.approx(x.counted, rel=0.2), (x.scope, x.loop)


def _branch(made: Program, part: str, rows: tuple[Row, ...]) -> bool:
    return any(row.name == f"part {part}" for row in rows)


@pytest.mark.slow
@pytest.mark.timeout(2000)
def test_tokens_of_one_sequence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A pass over consecutive tokens reads its sequence's tiles once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = changed("qwen38", ("layers       = 64", "layers       = 4"))
    (key, *_) = found.own_schedules
    schedule = found.schedules[key]
    assert schedule is not None
    made = lower(schedule, found.instances[key[0]], 8, consecutive=True)
    counted = count_step(made, timeout=1500)

    assert isinstance(counted, Bundles), counted
    (tiles,) = (row for row in counted.rows if row.name.startswith("tiles of"))
    assert tiles.times == schedule.context / made.caches[CacheRingRef("attention")].tile
