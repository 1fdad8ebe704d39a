"""`mks completion`: its scripts know every command, and a shell that sources one completes with it."""

from __future__ import annotations

import re
import shutil
from importlib import metadata
from pathlib import Path

import pytest
from attrs import evolve
from helpers import children

from mks.dsl.commands import cli
from mks.dsl.targets import targets
from mks.dsl.targets.v5e import V5E
from mks.server.commands.completion import PARSERS, command_lines, completion
from mks.server.commands.shell_scripts import SHELLS, Argument, CommandLine, Takes

# Asks the function that the script defines, as bash would.
DRIVER = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _mks; printf "%s\\n" "${COMPREPLY[@]}"'


def scripts(folder: Path) -> dict[str, Path]:
    """A file for each shell."""
    found = {}
    for shell, script in SHELLS.items():
        found[shell] = folder / f"mks.{shell}"
        found[shell].write_text(script(command_lines()), "utf-8")
    return found


def test_every_command_is_completed() -> None:
    """Those that are built in, and those of our own rooms."""
    assert {words.split()[0] for words in PARSERS} >= {*cli.BUILT_IN, "bench", "compile", "pack", "run", "serve"}
    ours = {name for name, (point,) in cli.others().items() if point.value.startswith("mks.")}
    assert {words.split()[0] for words in PARSERS} == {*cli.BUILT_IN, *ours}


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        (["mks", "co"], ["compile", "completion"]),
        (["mks", "check", "--d"], ["--dtype"]),
        (["mks", "check", "--dtype", ""], ["bf16", "f32"]),
        (["mks", "check", "--target", "tpu"], ["tpu7x"]),
        (["mks", "check", "--target=tpu"], ["--target=tpu7x"]),
        (["mks", "check", "--target", "=", "tpu"], ["tpu7x"]),
        (["mks", "check", "--dtype", "="], ["bf16", "f32"]),
        (["mks", "compile", "--checkpoint", "=", "a"], ["a folder"]),
        (["mks", "--debug", "ch"], ["check"]),
        (["mks", "--debug", "bench", "serve", "--c"], ["--clients"]),
        (["mks", "--d"], ["--debug"]),
        (["mks", "plan", "--rows", "--"], []),
        (["mks", "check", "qw"], ["qwen3", "qwen38"]),
        (["mks", "bench", ""], ["serve", "compile"]),
        (["mks", "bench", "serve", "--c"], ["--clients"]),
        (["mks", "bench", "compile", "--mem"], ["--memory"]),
        (["mks", "explain", "E50"], ["E501", "E502", "E503", "E504", "E505", "E506", "E507", "E508", "E509"]),
        (["mks", "compile", "--checkpoint", "a"], ["a folder"]),
        (["mks", "fmt", "a"], ["a folder", "a.mks"]),
        (["mks", "unknown", ""], []),
    ],
)
def test_bash(typed: list[str], wanted: list[str], tmp_path: Path) -> None:
    """Commands, options, values, definitions, files with spaces in their names, and nothing where a value is free."""
    (tmp_path / "a folder").mkdir()
    (tmp_path / "a.mks").touch()
    script = scripts(tmp_path)["bash"]
    done = children.run(["bash", "-c", DRIVER, "_", script, *typed], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr.replace("bash: line 1: compopt: not currently executing completion function\n", "") == ""
    assert sorted(done.stdout.split("\n")) == sorted([*wanted, ""]) or (wanted == [] and done.stdout == "\n")


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_parse(shell: str, tmp_path: Path) -> None:
    """By the shell that they are for, where it is installed."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = children.run([shell, "-n", scripts(tmp_path)[shell]], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_installed_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their targets, definitions and commands are completed with ours, and one that fails hides nothing."""
    brought = {
        "mks.targets": ("half", "mks.dsl.targets.v5e:HALF"),
        "mks.definitions": ("extra", "extra:path"),
        "mks.commands": ("odd", "no_such_package:run"),
    }

    def points(group: str) -> list[metadata.EntryPoint]:
        return [metadata.EntryPoint(*brought[group], group)] if group in brought else []

    monkeypatch.setattr(metadata, "entry_points", points)
    monkeypatch.setattr("mks.dsl.targets.v5e.HALF", evolve(V5E, name="half"), raising=False)
    targets._brought.cache_clear()
    try:
        lines = {line.words: line for line in command_lines()}
    finally:
        targets._brought.cache_clear()
    words = {each.name: each.words for each in lines["check"].arguments}
    assert "half" in words["T"]
    assert "extra" in words["FILE"]
    assert "cannot be loaded" in lines["odd"].about


def test_fish(tmp_path: Path) -> None:
    """Options of one command are not offered for another of the same last word."""
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    script = scripts(tmp_path)["fish"]
    lines = "; ".join(f'complete -C "{typed}"; echo .' for typed in ("mks bench serve --c", "mks --debug serve --c"))
    done = children.run(["fish", "-c", f"source {script}; {lines}"], capture_output=True, text=True)
    offered = [re.findall(r"^--[\w-]+", part, re.MULTILINE) for part in done.stdout.split(".\n")[:2]]
    assert offered[0] == ["--clients"]
    assert "--checkpoint" in offered[1]
    assert "--clients" not in offered[1]


def test_awkward_words_are_quoted() -> None:
    """What a help text holds breaks no script."""
    option = Argument(("--odd",), "N", "it's [one] of: a $x `y`", Takes.VALUE, ("1", "2"))
    line = CommandLine("try", "don't", (option,))
    assert "it'\\''s (one) of\\: a" in SHELLS["zsh"]([line])
    assert "-d 'it\\'s [one] of: a $x `y`'" in SHELLS["fish"]([line])


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a shell that it knows."""
    assert completion(["bash"]) == 0
    assert capsys.readouterr().out.endswith("complete -F _mks mks\n")
    with pytest.raises(SystemExit):
        completion(["tcsh"])
