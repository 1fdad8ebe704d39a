"""What the command line names, and what commands say of it: names, schedules that are not used, options in hints."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from helpers.definitions import text

from mks.backends.opening.find import find_model
from mks.dsl.commands.cli import main
from mks.dsl.diagnostics import MksError

DATA = Path(__file__).parents[2] / "data"


@pytest.mark.parametrize("command", [("check",), ("plan",), ("tune", "--rows", "1")])
def test_shipped_definitions_are_found_by_name(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From any folder, a name says what its file does; what is none is told, with those that are."""
    monkeypatch.chdir(tmp_path)
    options = ["--size", "layers=1"]
    assert main([*command, "smollm2", *options]) == 0
    by_name = capsys.readouterr().out
    (tmp_path / "smollm2.mks").write_text(text("smollm2"))
    assert main([*command, "smollm2.mks", *options]) == 0
    assert capsys.readouterr().out.replace("smollm2.mks:", "smollm2:") == by_name
    assert main([*command, "smolm2", *options]) == 1
    said = "".join(capsys.readouterr())
    assert "error[E400]" in said
    assert "did you mean `smollm2`?" in said


def test_a_file_of_that_name_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file needs no ending."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qwen3").write_text("mks 1\nmodel\n")
    assert main(["check", "qwen3"]) == 1
    assert "qwen3:2" in capsys.readouterr().out


@pytest.mark.parametrize(
    "edit",
    [("target v5e 1x1", "target v5e 3x5"), ("context 2048", "context 2048\n  nonsense 3"), ("v5e 1x1", "v5e 1x1 {")],
)
def test_a_faulty_schedule_is_no_error_where_none_is_used(edit: tuple[str, str], tmp_path: Path) -> None:
    """It is left out with a warning that says why; kernels refuse it."""
    path = tmp_path / "odd.mks"
    path.write_text(text("smollm2").replace(*edit))
    definition, model, found = find_model(str(path), scheduled=False)
    (warning,) = found
    assert (warning.code, warning.severity) == ("W202", "warning")
    assert "`one` has errors" in warning.message
    assert warning.notes
    assert warning.primary is not None
    assert warning.primary.span.source.text.count("\n") == path.read_text().count("\n")
    assert model.name == "smollm2"
    assert not definition.schedules
    with pytest.raises(MksError):
        find_model(str(path))


def test_an_error_of_the_model_stays_one(tmp_path: Path) -> None:
    """Whatever the schedule is like."""
    path = tmp_path / "odd.mks"
    path.write_text(
        text("smollm2").replace("target v5e 1x1", "target v5e 3x5").replace("h = embed[token]", "h = embed")
    )
    with pytest.raises(MksError) as caught:
        find_model(str(path), scheduled=False)
    assert "E107" in {d.code for d in caught.value.diagnostics}


@pytest.mark.parametrize(
    "command",
    [
        ("check",),
        ("plan",),
        ("tune",),
        ("compile", "-o", "compiled"),
        ("bench compile",),
        ("run", "--ids", "1"),
        ("serve",),
        ("pack", "-o", "packed"),
        ("verify",),
    ],
    ids=lambda command: command[0],
)
def test_hints_name_options_that_the_command_has(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A config of other sizes: the hint's option is in the command's own help."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for file in (DATA / "qwen3_tiny").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 77}))
    words = command[0].split()
    assert main([*words, "qwen3", "--checkpoint", str(folder), *command[1:]]) == 1
    said = "".join(capfd.readouterr())
    hints = re.findall(r"= help: `(--[a-z]+)", said)
    assert "error[E410]" in said
    assert hints
    assert main([*words, "--help"]) == 0
    listed = capfd.readouterr().out
    assert all(f"{hint}" in listed for hint in hints)


def test_a_hint_of_another_command_is_seen(capfd: pytest.CaptureFixture[str]) -> None:
    """`mks plan` has no `--sizes`, which its hint named once."""
    assert main(["plan", "--help"]) == 0
    assert "--sizes" not in capfd.readouterr().out


def test_check_of_f32(capsys: pytest.CaptureFixture[str]) -> None:
    """What fits in bf16 may not in f32; weights and caches take twice the bytes."""
    read = []
    for dtype in ("bf16", "f32"):
        assert main(["check", "smollm2", "--size", "layers=2", "--dtype", dtype, "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)["schedules"][0]["rows"]
        read.append(row["read_bytes"]["total"])
    assert read[1] == 2 * read[0]
    assert main(["check", "kimi_k3"]) == 0
    assert "W301" not in capsys.readouterr().out
    assert main(["check", "kimi_k3", "--dtype", "f32"]) == 0
    assert "warning[W301]" in capsys.readouterr().out
