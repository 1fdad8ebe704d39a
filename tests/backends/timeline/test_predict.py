"""A Program's step, unrolled and simulated: what is counted, what bounds it, what would help."""

import json
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from attrs import evolve
from helpers.experts import expert

from mks.backends.timeline.actions import Await, Collect, Issue, Post
from mks.backends.timeline.costs import attend_tile, expert_dot
from mks.backends.timeline.links import chips, crossings
from mks.backends.timeline.report import report
from mks.backends.timeline.summary import Prediction, predict
from mks.backends.timeline.text import as_text
from mks.backends.timeline.unroll import unroll
from mks.dsl.commands.cli import main
from mks.dsl.frontend import load_definition
from mks.dsl.model.ir import Codec
from mks.dsl.program import ir as p
from mks.dsl.program.analysis.traffic import kept, reads, writes
from mks.dsl.program.ir.walk import walk
from mks.dsl.program.lower.lower import lower
from mks.dsl.schedule.ir import Store
from mks.dsl.targets.targets import targets

MODELS = Path(__file__).parents[3] / "models"


@cache
def program(model: str, rows: int = 1, **changes: object) -> p.Program:
    """A shipped model's Program; `changes` are made in its schedule."""
    found = load_definition(MODELS / f"{model}.mks")
    (key, *_) = found.own_schedules
    schedule = found.schedules[key]
    assert schedule is not None
    return lower(evolve(schedule, **changes), found.instances[key[0]], rows)


@cache
def span(model: str, tokens: int = 8) -> p.Program:
    """A shipped model's Program of so many tokens of one sequence."""
    made = program(model)
    return lower(made.schedule, made.instance, tokens, consecutive=True)


@cache
def predicted(model: str, rows: int = 1, position: int | None = None) -> Prediction:
    """Its step, without trying what would help."""
    return predict(program(model, rows), position, savings=False)


@pytest.mark.parametrize("model", ["qwen38", "kimi_k3"])
def test_every_action_has_its_other_half(model: str) -> None:
    """All that sets out is waited for once, and every exchange is completed."""
    made = program(model)
    issued, awaited, posted, collected = set(), [], 0, 0
    for action in unroll(made, targets["tpu7x"], 1000):
        match action:
            case Issue():
                assert action.key not in issued
                issued.add(action.key)
            case Await():
                awaited.append(action.key)
            case Post():
                posted += 1
            case Collect():
                collected += 1
    assert len(awaited) == len(set(awaited))
    assert set(awaited) == issued
    assert posted == collected > 0


def test_bytes_are_those_of_the_program() -> None:
    """A model without experts: what the simulation moves is what the Program says that a step moves.

    And then states once more, from where the kernel left them to where they belong.
    """
    for made in (program("qwen38"), span("qwen38")):
        full = predict(made, 4095, savings=False)
        moved = [*reads(made), *writes(made)]
        states = next(line.bytes for line in writes(made) if line.name == "states")
        said = sum(line.bytes for line in moved) + 2 * states
        assert full.bytes == said
        assert full.floor == pytest.approx(said / 3.2e12)


def test_tokens_of_one_sequence() -> None:
    """Eight read what one does, tiles and states included, see a tile together, and keep the state after each."""
    one, rows, tokens = (
        predict(made, 4095, savings=False) for made in (program("qwen38"), program("qwen38", 8), span("qwen38"))
    )
    states = kept(program("qwen38").arrays, "state")

    def moved(made: Prediction, what: str) -> int:
        return sum(x.bytes for x in made.trace.transfers if x.where.what == what)

    for what in ("keys", "values", "state delta.S"):
        assert 0 < moved(tokens, what) == moved(one, what) == moved(rows, what) // 8
    for made, count in ((one, 1), (rows, 8), (tokens, 8)):
        (commit,) = (x for x in made.stalls if x.kind == "commit")
        assert moved(made, "commit") == 2 * count * states
        assert commit.seconds == pytest.approx(2 * count * states / 3.2e12, abs=1e-6)
        assert commit.saves is None
    assert one.step < tokens.step < rows.step


@pytest.mark.parametrize("model", ["qwen38", "kimi_k3"])
def test_a_tile_that_several_tokens_see(model: str) -> None:
    """Their heads stand together: more than one row's, less than each token by itself."""
    (alone, several) = (
        next(at.op for at in walk(made) if isinstance(at.op, p.Attend)) for made in (program(model), span(model))
    )
    figures = targets["tpu7x"]
    one, eight = attend_tile(alone, program(model), figures), attend_tile(several, span(model), figures)
    assert one < eight < 8 * one


def test_a_plan_of_a_span(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """In words, as a prediction and as a trace it is one of tokens, not of rows; there are the schedule's alone."""
    path = str(MODELS / "qwen38.mks")
    assert main(["plan", path, "--span", "8", "--time", "--position", "100", "--trace", str(tmp_path / "t.json")]) == 0
    assert "`ironwood4` of `qwen38`, 8 tokens of one sequence at position 100" in capsys.readouterr().out
    assert "8 tokens of one sequence at position 100" in (tmp_path / "t.json").read_text().splitlines()[1]
    assert main(["plan", path, "--span", "8"]) == 0
    assert "program `ironwood4` of `qwen38`: 8 tokens of one sequence, " in capsys.readouterr().out
    assert main(["plan", path, "--span", "5"]) == 1
    assert "span 8" in capsys.readouterr().err
    assert main(["plan", path, "--span", "8", "--rows", "1"]) == 2


def test_time_is_accounted_for() -> None:
    """Parts, and kinds of time within a part, add up to the step; HBM is never more than busy."""
    for model in ("qwen38", "kimi_k3"):
        made = predicted(model)
        assert sum(part.seconds for part in made.parts) == pytest.approx(made.step)
        for part in made.parts:
            kinds = part.mxu + part.vpu + part.hbm + part.link + part.latency
            assert kinds == pytest.approx(part.seconds)
            assert -1e-12 <= part.idle <= part.seconds
        idle = sum(part.idle for part in made.parts)
        assert made.step - made.busy == pytest.approx(idle)
        assert made.floor <= made.busy * (1 + 1e-9) <= made.step * (1 + 1e-9)


def test_more_of_anything_takes_longer() -> None:
    """Positions, rows, and a shallower ring."""
    base = predicted("qwen38", 1, 2048).step
    assert predicted("qwen38", 1, 100).step < base < predicted("qwen38", 8, 2048).step
    schedule = program("qwen38").schedule
    shallow = program("qwen38", streams=tuple(evolve(stream, slots=4) for stream in schedule.streams))
    assert predict(shallow, 2048, savings=False).step > base * 1.05


def test_late_copies_are_shown_with_what_they_cost() -> None:
    """Without their prefetch each layer's vectors are waited for, and it is said what that costs."""
    schedule = program("qwen38").schedule
    early = tuple(line for line in schedule.prefetches if line.kind != "vectors")
    made = predict(program("qwen38", prefetches=early), 1000)
    stall = next(stall for stall in made.stalls if stall.what == "vectors delta")
    assert stall.times == 48
    assert stall.saves is not None
    assert stall.saves > 48 * 0.3e-6
    assert "`prefetch vectors` at an earlier point, for `vectors delta`" in as_text(made)
    assert not any(stall.what == "vectors delta" for stall in predicted("qwen38").stalls)


def test_the_exchange_of_a_sum_is_the_cost_of_small_models_over_many_cores() -> None:
    """Kimi K3 over 32 cores: links bound its layers, and the words say which exchanges cost most."""
    made = predict(program("kimi_k3"), 1152)
    moe = next(part for part in made.parts if part.name == "moe")
    assert moe.bound == "links"
    assert {stall.what for stall in made.stalls[:2]} == {"x", "x columns"}
    assert "moe.x" in as_text(made)


@pytest.mark.parametrize(
    ("target", "codec", "counted"),
    [
        ("tpu7x", "fp8", (801, 790)),
        ("v6e", "fp8", (1169, 1155)),
        ("v5p", "fp8", (1182, 1180)),
        ("v5e", "fp8", (1149, 1145)),
        ("tpu7x", "mxfp4", (1084, 1548)),
        ("v6e", "mxfp4", (1166, 1801)),
        ("v5p", "mxfp4", (1194, 3971)),
        ("v5e", "mxfp4", (1151, 3934)),
    ],
)
def test_experts_cost_what_was_counted(target: str, codec: str, counted: tuple[int, int]) -> None:
    """Both products of an expert of Kimi K3, of one row or eight, within 5 % of the compiler's bundles."""
    layout = expert(384, 3584, codec)
    for rows, bundles in zip((1, 8), counted, strict=True):
        found = sum(expert_dot(product, rows, targets[target]) for product in layout.products)
        assert found == pytest.approx(bundles, rel=0.05)


def test_experts_as_fp8_take_longer_to_fetch() -> None:
    """Twice the bytes of an expert cost more than multiplying it saves."""
    found = load_definition(MODELS / "kimi_k3.mks")
    (key, *_) = found.own_schedules
    schedule = found.schedules[key]
    assert schedule is not None
    stores = tuple(Store(f"moe.{name}", Codec("fp8", 256), schedule.span) for name in ("gate", "up", "down"))
    made = predict(program("kimi_k3", stores=stores), 1152, savings=False)
    stored = predicted("kimi_k3", 1, 1152)
    assert made.bytes > 1.15 * stored.bytes
    assert made.step > stored.step


def test_groups_lie_where_the_mesh_puts_them() -> None:
    """Sixteen cores are 2 x 2 x 2 chips; two such groups are a line; messages cross its middle most."""
    schedule = program("kimi_k3").schedule
    assert chips(schedule, ("tp",)) == (2, 2, 2)
    assert chips(schedule, ("ep",)) == (1, 1, 2)
    assert chips(schedule, ("ep", "tp")) == (2, 2, 4)
    assert crossings(8, (2, 2, 1)) == 4
    assert crossings(32, (2, 2, 4)) == 32


def test_the_command_predicts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`mks plan --time`: in words and as JSON, every number marked as predicted."""
    real = metadata.entry_points

    class Point:
        """An installed entry point."""

        def load(self) -> object:
            """What it names."""
            return report

    def points(**given: str) -> object:
        return [Point()] if given.get("group") == "mks.timelines" else real(**given)

    monkeypatch.setattr(metadata, "entry_points", points)
    path = str(MODELS / "smollm2.mks")
    assert main(["plan", path, "--time", "--position", "10"]) == 0
    assert "ms a step, predicted" in capsys.readouterr().out
    assert main(["plan", path, "--time", "--json"]) == 0
    (made, *_) = json.loads(capsys.readouterr().out)["schedules"]
    assert made["predicted"] is True
    assert made["step_seconds"] > made["floor_seconds"] > 0
    assert all(figure["source"] for figure in made["figures"])
    assert main(["plan", path, "--position", "10"]) == 2
