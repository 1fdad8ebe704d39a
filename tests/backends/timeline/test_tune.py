"""The search for a faster schedule: what it keeps fits, is proven, is written as text, and is as fast as it says."""

import json
from functools import cache
from pathlib import Path

import pytest
from helpers.schedules import kimi
from helpers.small import Case, program

from mks.backends.commands import tune as command
from mks.backends.commands.tune import block, main
from mks.backends.timeline.moves import choices, fitting
from mks.backends.timeline.summary import predict
from mks.backends.timeline.tune import Tuned, proven, steps, tune
from mks.dsl.frontend import Definition, check_source
from mks.dsl.model.instance import Instance
from mks.dsl.program.lower.lower import lower
from mks.dsl.schedule.ir import Schedule
from mks.dsl.source import Source

MODELS = Path(__file__).parents[3] / "models"
# A short model, for one row, with rings that are too short: what is searched is the same, and there is much to gain.
TEXT = (
    (MODELS / "qwen38.mks")
    .read_text("utf-8")
    .replace("size layers   = 64", "size layers   = 4")
    .replace("rows 1, 2, 4, 8", "rows 1")
    .replace("slots = 14", "slots = 12")
    .replace("tile = 1024 tokens, slots = 8", "tile = 256 tokens, slots = 3")
)


@cache
def short() -> tuple[Source, Definition, Schedule, Instance]:
    """The definition, and its schedule at its sizes."""
    source = Source("short.mks", TEXT)
    made = check_source(source)
    assert not made.diagnostics
    schedule = made.schedules["qwen38", "ironwood4"]
    assert schedule is not None
    return source, made, schedule, made.instances["qwen38"]


@cache
def tuned() -> Tuned:
    """What the search finds for it."""
    _, _, schedule, instance = short()
    return tune(schedule, instance, (1,), 4095)


def test_the_search_gains_what_it_says() -> None:
    """Each change that was kept gained, and the schedule found fits, is proven, and is as fast as was said."""
    _, _, schedule, instance = short()
    made = tuned()
    order = [made.before[1], *(kept.steps[1] for kept in made.accepted)]
    assert order == sorted(order, reverse=True)
    assert made.after[1] < 0.95 * made.before[1]
    programs, was = fitting(made.schedule, instance), fitting(schedule, instance)
    assert programs is not None
    assert was is not None
    assert made.before == steps(was, (1,), 4095)
    assert made.after == steps(programs, (1,), 4095)
    assert proven(programs)


def test_what_is_found_can_be_written() -> None:
    """Its text is a schedule without errors, with the same predicted step; comments stay."""
    source, definition, schedule, _ = short()
    text = block(source, definition, schedule, tuned().schedule)
    assert text != block(source, definition, schedule, schedule)
    assert "# four chips, eight cores" in text
    whole = TEXT[: TEXT.index("schedule ironwood4")] + text + "\n"
    again = check_source(Source("again.mks", whole))
    assert not [d for d in again.diagnostics if d.severity == "error"]
    made = again.schedules["qwen38", "ironwood4"]
    assert made is not None
    assert steps({1: lower(made, again.instances["qwen38"], 1)}, (1,), 4095) == pytest.approx(tuned().after)


def test_an_unchanged_schedule_is_written_as_it_was() -> None:
    """Nothing is written anew but what differs."""
    source, definition, schedule, _ = short()
    assert block(source, definition, schedule, schedule) == TEXT[TEXT.index("schedule ironwood4") :].strip()


def test_what_does_not_fit_is_not_kept() -> None:
    """Streams are never proposed with more slots than the bill has room for."""
    _, _, schedule, instance = short()
    streams, *others = choices(schedule, instance, lower(schedule, instance, 1))
    deepest = max(move.schedule.streams[0].slots for move in streams.moves(schedule))
    assert 12 < deepest < 26
    most = [move.schedule for move in streams.moves(schedule) if move.schedule.streams[0].slots == deepest]
    wide = [move for other in others for move in other.moves(most[0]) if "tile = 2048 tokens, slots = 8" in move.text]
    assert wide
    assert fitting(wide[0].schedule, instance) is None


def test_tiles_are_no_longer_than_what_a_core_has() -> None:
    """Where caches are shared out by positions, a line with a longer one would be refused."""
    lines = kimi(2, 4, positions="ep, tp", context=8192).replace("slots = 6", "slots = 8")
    made = program(Case("kimi_k3", 5, lines, 1, (("vocab", 32768),)))
    tiles = {
        line.tile
        for choice in choices(made.schedule, made.instance, made)
        for move in choice.moves(made.schedule)
        for line in move.schedule.prefetches
        if line.kind == "cache"
    }

    assert tiles == {128, 256, 512, 1024}


def test_a_bare_schedule_gets_a_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A target alone is enough to start from; what was tried is told, and the text found is as fast as it says."""
    path = tmp_path / "bare.mks"
    source = (MODELS / "smollm2.mks").read_text("utf-8").replace("size layers   = 30 ", "size layers   = 4 ")
    path.write_text(source, "utf-8")
    assert main([str(path), "--json"]) == 0
    (made,) = json.loads(capsys.readouterr().out)["schedules"]
    assert made["after_seconds"]["1"] < 0.8 * made["before_seconds"]["1"]
    assert "stream dense {" in made["text"]
    assert "attention : (wq, wk, wv), wo" in made["text"]
    assert {"stream dense", "prefetch attention.cache"} <= {each["what"] for each in made["searched"]}
    assert sum(each["fitted"] for each in made["searched"]) == made["tried"]

    path.write_text(source[: source.index("schedule one")] + made["text"] + "\n", "utf-8")
    again = check_source(Source(str(path), path.read_text("utf-8")))
    assert not again.diagnostics
    schedule = again.schedules["smollm2", "one"]
    assert schedule is not None
    found = steps({1: lower(schedule, again.instances["smollm2"], 1)}, (1,), schedule.context - 1)
    assert found[1] == pytest.approx(made["after_seconds"]["1"])
    assert main([str(path)]) == 0
    assert "stream dense" in capsys.readouterr().err


def test_the_tuned_model_of_64_layers_comes_near_its_floor() -> None:
    """Qwen3.8 at one row, with the lines that the search finds: 85 % of the floor of its bytes or more."""
    text = (MODELS / "qwen38.mks").read_text("utf-8")
    for old, new in (
        ("slots = 14", "slots = 18"),
        ("(by = scatter_gather, wire = bf16)", "(by = direct, wire = bf16)"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    made = check_source(Source("tuned.mks", text))
    schedule = made.schedules["qwen38", "ironwood4"]
    assert schedule is not None
    found = predict(lower(schedule, made.instances["qwen38"], 1), 4095, savings=False)
    assert found.used >= 0.85
    assert found.step <= 2.0e-3 / 0.85


def test_the_command_prints_a_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Text to standard output and gains to standard error; JSON has both; a wrong name is an error."""
    path = tmp_path / "short.mks"
    path.write_text(TEXT, "utf-8")
    monkeypatch.setattr(command, "tune", lambda *given: tuned())
    assert main([str(path), "--schedule", "ironwood4"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("schedule ironwood4 for qwen38 {")
    assert "predicted" in said.err
    assert main([str(path), "--json"]) == 0
    (made,) = json.loads(capsys.readouterr().out)["schedules"]
    assert made["text"] == said.out.strip()
    assert made["after_seconds"]["1"] < made["before_seconds"]["1"]
    assert main([str(path), "--schedule", "none"]) == 1
    assert "none" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("context 4096", "context 9223372036854775808", "E218"),
        ("slots = 12", "slots = 2000000", "E301"),
    ],
)
def test_what_does_not_fit_is_not_searched(
    old: str, new: str, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused as `mks check` refuses it, before anything is simulated."""
    path = tmp_path / "wide.mks"
    path.write_text(TEXT.replace(old, new), "utf-8")
    assert main([str(path)]) == 1
    said = capsys.readouterr()
    assert (said.out, f"error[{code}]" in said.err) == ("", True)
