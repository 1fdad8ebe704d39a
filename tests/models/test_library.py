"""Finding definitions by name, by path and in installed packages."""

import sys
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from helpers import children

from mks.models import library
from mks.models.library import find_definition, shipped


def codes(name: str | Path) -> list[str]:
    """The codes of a name that finds nothing."""
    source, found = find_definition(name)
    assert source is None
    return [d.code for d in found]


def test_shipped_definitions() -> None:
    """All shipped names are found, with their text."""
    assert {"smollm2", "qwen3", "qwen38", "kimi_k3", "dspark", "muse_spark"} <= set(shipped())
    for name in shipped():
        source, found = find_definition(name)
        assert source is not None, found
        assert f"model {name}" in source.text
        assert Path(source.name).parent.is_dir()


def test_paths(tmp_path: Path) -> None:
    """A separator or the ending makes a name a path; so does being one."""
    (tmp_path / "mine.mks").write_text("mks 1\n")

    for path in (tmp_path / "mine.mks", str(tmp_path / "mine.mks")):
        source, found = find_definition(path)
        assert source is not None, found
        assert source.text == "mks 1\n"


def test_a_wrong_name_suggests_the_right_one() -> None:
    """An unknown name lists the known ones and suggests the nearest."""
    _, (found,) = find_definition("smolm2")

    assert found.code == "E400"
    assert "did you mean `smollm2`?" in found.helps
    assert "kimi_k3" in found.notes[0]


def test_a_wrong_path_suggests_the_right_one(tmp_path: Path) -> None:
    """An absent file suggests one beside it."""
    (tmp_path / "mine.mks").write_text("mks 1\n")

    source, (found,) = find_definition(tmp_path / "mime.mks")

    assert source is None
    assert found.helps == ("did you mean `mine.mks`?",)


@pytest.mark.parametrize("name", ["", "\0", "a\0b.mks", "/no/such/folder/x.mks", "."])
def test_odd_names(name: str) -> None:
    """Names that cannot be anything are answered."""
    assert len(codes(name)) == 1


def bring(monkeypatch: pytest.MonkeyPatch, **points: str) -> None:
    """Pretend that installed packages offer these definitions."""
    made = [EntryPoint(name, value, library.GROUP) for name, value in points.items()]
    monkeypatch.setattr(metadata, "entry_points", lambda **_: made)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package that holds `extra.mks`, and objects that mean it."""
    folder = tmp_path / "mks_test_library_package"
    folder.mkdir()
    (folder / "extra.mks").write_text("mks 1\n# extra\n")
    (folder / "__init__.py").write_text(
        "from importlib.resources import files\nfrom pathlib import Path\n"
        "path = Path(__file__).parent / 'extra.mks'\ntext = str(path)\nresource = files(__name__) / 'extra.mks'\n"
        "def call():\n    return path\ndef fail():\n    raise ValueError('no')\nnumber = 3\n"
        "gone = path.parent / 'gone.mks'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, folder.name, raising=False)
    return folder.name


@pytest.mark.parametrize("attribute", ["", ":path", ":text", ":resource", ":call"])
def test_installed_packages(package: str, monkeypatch: pytest.MonkeyPatch, attribute: str) -> None:
    """A package offers a module, a path or a function."""
    bring(monkeypatch, extra=package + attribute)

    source, found = find_definition("extra")

    assert source is not None, found
    assert "# extra" in source.text


@pytest.mark.parametrize(
    ("value", "code"), [(":fail", "E400"), (":number", "E400"), (":absent", "E400"), (":gone", "E003")]
)
def test_packages_that_bring_nothing(package: str, monkeypatch: pytest.MonkeyPatch, value: str, code: str) -> None:
    """What another package does wrong is a diagnostic that names it."""
    bring(monkeypatch, extra=package + value)

    assert codes("extra") == [code]


def test_shipped_names_win(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package cannot take a shipped name, and is not even looked at for one."""
    scanned: list[Any] = []
    monkeypatch.setattr(metadata, "entry_points", lambda **_: scanned.append(1) or [])

    source, _ = find_definition("smollm2")

    assert source is not None
    assert not scanned


def test_importing_the_package_is_light() -> None:
    """`mks.models` and the library import neither numpy nor gguf, so that checking stays quick."""
    script = "import sys, mks.models, mks.models.library; print(*{'numpy', 'gguf', 'jax'} & set(sys.modules))"

    run = children.run([sys.executable, "-c", script], capture_output=True, text=True, seconds=60)

    assert run.stdout.split() == []
    assert run.returncode == 0
