"""`mks check --compile`, with a compiler that a test brings."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.definitions import text

from mks.dsl.commands import compiled
from mks.dsl.commands.cli import main
from mks.dsl.diagnostics import Diagnostic, MksError

MiB = 1 << 20


@pytest.fixture
def band(tmp_path: Path) -> str:
    """Qwen3.8 with a ring that the bill leaves to the compiler at eight rows."""
    path = tmp_path / "deep.mks"
    path.write_text(text("qwen38").replace("slots = 14", "slots = 18").replace("rows 1, 2, 4, 8", "rows 4, 8"))
    return str(path)


def compiling(monkeypatch: pytest.MonkeyPatch, measure) -> list[int]:
    """Put `measure` in the compiler's place; the rows that it is asked for."""
    asked: list[int] = []

    def counted(program):
        asked.append(program.rows)
        return measure(program)

    monkeypatch.setattr(compiled, "compiler", lambda: counted)
    return asked


def test_what_only_the_compiler_can_tell_is_a_warning(band: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without `--compile` it is said how to settle it, and what is safe."""
    assert main(["check", band]) == 0
    out = capsys.readouterr().out
    assert "warning[W301]" in out
    assert "`mks check --compile` settles it" in out
    assert "slots = 17 for `dense` fits" in out


def test_what_compiles_fits(band: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The warning is settled, and the compiler's figure stands beside the bill."""
    asked = compiling(monkeypatch, lambda program: SimpleNamespace(vmem=60 * MiB))
    assert main(["check", band, "--compile"]) == 0
    out = capsys.readouterr().out
    assert asked == [4, 8, 8]
    assert "W301" not in out
    assert "compiled 60.00 MiB" in out


def test_what_does_not_compile_does_not_fit(
    band: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the band that is no fault of the bill."""

    def measure(program):
        if program.rows == 8:
            raise MksError([Diagnostic("E503", "too much", notes=("the compiler: used 65 of 64",))])
        return SimpleNamespace(vmem=60 * MiB)

    compiling(monkeypatch, measure)
    assert main(["check", band, "--compile"]) == 1
    out = capsys.readouterr().out
    assert "error[E301]: `ironwood4` does not fit at rows = 8: compiled, it needs more VMEM than there is" in out
    assert "the compiler: used 65 of 64" in out
    assert "W301" not in out


def test_what_is_refused_is_not_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring far too deep."""
    path = tmp_path / "deep.mks"
    path.write_text(text("qwen38").replace("slots = 14", "slots = 60"))
    asked = compiling(monkeypatch, lambda program: SimpleNamespace(vmem=0))
    assert main(["check", str(path), "--compile"]) == 1
    assert asked == []


def test_without_a_compiler_it_says_so(band: str, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    """What is missing, and how it is installed."""
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: ())
    assert main(["check", band, "--compile"]) == 1
    assert "error[E501]" in capsys.readouterr().out


def test_packages_bring_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first entry point of the group is taken."""
    point = EntryPoint("mine", "math:sqrt", compiled.GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: (point,) * (group == "mks.compilers"))
    found = compiled.compiler()
    assert not isinstance(found, Diagnostic)
    assert found(9) == 3
