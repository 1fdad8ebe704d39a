"""Bundles that were counted take the place of those that are estimated, place by place."""

import json
from functools import cache

import pytest
from attrs import evolve
from helpers.definitions import changed

from mks.backends.pallas.cycles.bundle_cache import keep
from mks.backends.pallas.cycles.bundles import Bundles, Row
from mks.backends.pallas.emit.scopes import LAYERS, expert_scope, part_scope
from mks.backends.pictures.entry import draw
from mks.backends.timeline.actions import Await
from mks.backends.timeline.counted import Counted
from mks.backends.timeline.report import report
from mks.backends.timeline.summary import Prediction, predict
from mks.backends.timeline.unroll import unroll
from mks.dsl.program import ir as p
from mks.dsl.program.lower.lower import lower
from mks.dsl.targets.targets import targets

POSITION = 1152
TPU = targets["tpu7x"]


@cache
def program(model: str) -> p.Program:
    """A shipped model's first Program."""
    found = changed(model)
    (key, *_) = found.own_schedules
    schedule = found.schedules[key]
    assert schedule is not None
    return lower(schedule, found.instances[key[0]], 1)


@cache
def estimated(model: str) -> Prediction:
    """Its step by estimates."""
    return predict(program(model), POSITION, savings=False)


def bundles(*rows: Row) -> Bundles:
    """A schedule that has been counted."""
    return Bundles(round(sum(row.total for row in rows)), sum(row.bundles for row in rows), rows, True)


def seconds(made: Prediction, part: str) -> float:
    """For how long a place computes."""
    return sum(x.mxu + x.vpu for x in made.parts if x.name == part)


def predicted(model: str, *rows: Row) -> Prediction:
    """Its step with what was counted."""
    return predict(program(model), POSITION, savings=False, bundles=bundles(*rows))


def kimi(moe: float, expert: float, inner: float = 0.0) -> Prediction:
    """Kimi K3 with so many bundles in the part `moe`, in each expert, and in a loop inside of that one."""
    (bank,) = program("kimi_k3").banks
    return predicted(
        "kimi_k3",
        Row("kernel", "call", 0, 1000, 1, True),
        Row(LAYERS, "loop", 1, 500, 93, True),
        Row(part_scope("moe"), "branch", 2, round(moe), 92, True),
        Row("branch 0x10", "branch", 3, 0, 92, False),
        Row(expert_scope(bank), "loop", 4, round(expert), 500.0, True),
        Row("loop 0x20", "loop", 5, round(inner), 1000.0, True),
    )


def test_a_part_takes_what_was_counted() -> None:
    """In all its runs, experts apart, of which each takes its own; what is inside counts with what it is in."""
    clock = TPU.compute.clock.value
    experts = sum(isinstance(x, Await) and x.kind == "expert" for x in unroll(program("kimi_k3"), TPU, POSITION))

    for moe, expert, inner in ((2000, 900, 0), (6000, 900, 0), (2000, 1800, 0), (2000, 900, 450)):
        made = kimi(moe, expert, inner)
        wanted = (92 * moe + experts * (expert + 2 * inner)) / clock
        assert seconds(made, "moe") == pytest.approx(wanted, rel=1e-3)
    assert kimi(6000, 900).step > kimi(2000, 900).step


def test_parts_that_every_layer_runs_are_counted_with_the_layers() -> None:
    """They have no branch: together they take the loop's own bundles."""
    made = kimi(2000, 900)

    assert seconds(made, "enter") + seconds(made, "leave") == pytest.approx(93 * 500 / made.target.compute.clock.value)
    assert seconds(made, "step") == pytest.approx(1000 / made.target.compute.clock.value)


def test_what_was_not_counted_is_estimated() -> None:
    """A schedule that names no part but one leaves the others as they were."""
    made, before = kimi(2000, 900), estimated("kimi_k3")

    assert before.counts == ()
    assert before.compute == "estimated by op"
    for part in ("kda", "mla", "dense"):
        assert seconds(made, part) == pytest.approx(seconds(before, part))
    assert {(x.scope, x.loop) for x in made.counts} == {("moe", ""), ("moe", "experts"), (LAYERS, ""), ("step", "")}


def test_what_was_kept_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """In words and as data: where computing comes from, and each place's bundles beside the estimate."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = program("qwen38")
    text, data = report(made, POSITION)
    assert "compute estimated by op" in text
    assert data["bundles"] == []

    keep(made, bundles(Row("kernel", "call", 0, 1000, 1, True), Row(part_scope("delta"), "branch", 1, 7000, 48, True)))
    text, data = report(made, POSITION)
    assert "compute counted from the compiler's schedule" in text
    assert any(line.split()[:2] == ["delta", "7000"] for line in text.splitlines())
    for kind, drawing in draw(made, POSITION, ("svg", "html")).items():
        assert "compute counted from" in drawing or "compute is counted from" in drawing, kind
        assert "estimated by op" not in drawing, kind
    (delta,) = (x for x in data["bundles"] if x["place"] == "delta")
    assert delta["counted"] == 7000
    assert json.loads(json.dumps(data))["compute"] == "counted from the compiler's schedule"


def test_a_factor() -> None:
    """Counted over estimated."""
    assert Counted("moe", "", 3000, 2000).factor == 1.5
    assert evolve(Counted("moe", "", 3000, 2000), counted=1000).factor == 0.5
