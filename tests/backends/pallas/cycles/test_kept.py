"""Counts that are kept between runs."""

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from attrs import asdict, evolve
from helpers.small import Case, program

from mks.backends.pallas.cycles import bundle_cache as keeping
from mks.backends.pallas.cycles.bundle_cache import keep, kept
from mks.backends.pallas.cycles.bundles import Bundles, Row
from mks.dsl.program.ir import Program

FOUND = Bundles(130, 40, (Row("kernel", "call", 0, 30, 1, True), Row("layers", "loop", 1, 10, 10, True)), True)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder for what is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "mks" / "bundles"


def made(rows: int = 1) -> Program:
    """Two layers of SmolLM2."""
    return program(Case("smollm2", 2, "target v5e 1x1\ncontext 256", rows))


def test_what_was_counted_is_found_again(cache: Path) -> None:
    """The same Program, lowered anew, has it; another has not."""
    assert kept(made()) is None
    keep(made(), FOUND)
    program.cache_clear()

    assert kept(made()) == FOUND
    assert kept(made(2)) is None
    assert len(list(cache.iterdir())) == 1


@pytest.mark.parametrize("name", ["versions", "emitters"])
def test_other_compilers_and_emitters_make_other_kernels(
    cache: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What was counted with others is not taken."""
    keep(made(), FOUND)
    monkeypatch.setattr(keeping, name, lambda: "another")

    assert kept(made()) is None


DAMAGED = (
    "",
    "[]",
    "{}",
    "[" * 100_000,
    '{"total": 1, "static": 1, "exact": true, "rows": [{"name": "x"}]}',
    json.dumps(asdict(evolve(FOUND, rows=FOUND.rows[1:]))),
    json.dumps(asdict(FOUND)).replace("30", '"30"'),
)


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_is_none(cache: Path, text: str, sealed: bool) -> None:
    """It is counted again, whether or not its first line is a file's own."""
    keep(made(), FOUND)
    (path,) = cache.iterdir()
    path.write_text(path.read_text().partition("\n")[0] * sealed + "\n" * sealed + text)

    assert kept(made()) is None
    keep(made(), evolve(FOUND, total=131))
    assert kept(made()) == evolve(FOUND, total=131)


def test_a_place_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is kept, and nothing fails."""
    (tmp_path / "mks").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep(made(), FOUND)

    assert kept(made()) is None


def test_emitters_are_all_that_make_a_kernel() -> None:
    """The folders that are hashed exist, and hold the emitter, the ops, the collectives and their buffers."""
    root = Path(keeping.__file__).parents[3]
    hashed = {path.relative_to(root).as_posix() for folder in keeping.MAKERS for path in (root / folder).rglob("*.py")}
    assert hashed >= {
        "backends/pallas/emit/emitter.py",
        "backends/pallas/collectives/sums.py",
        "backends/reference/ops/elementwise.py",
        "dsl/collectives/two_level.py",
    }


def test_a_package_without_its_module() -> None:
    """What cannot be imported makes no kernel, and hashing goes on."""
    for value, source in (("nowhere.at.all:f", b""), ("zz R!!", b""), ("unittest.case:TestCase", b"class TestCase")):
        found = keeping._source(EntryPoint("op", value, "mks.pallas"))
        assert (bool(found), source in found) == (bool(source), True)
