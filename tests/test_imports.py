"""Imports go only downward: grammar, dsl, models and backends, server."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ALLOWED = {
    "grammar": set(),
    "dsl": {"grammar"},
    "models": {"dsl"},
    "backends": {"dsl"},
    "server": {"dsl", "models", "backends"},
}
LATE = {"dsl": {"jax", "rich", "numpy"}, "models": {"jax"}}


def imported(path: Path, top_level_only: bool = False) -> set[str]:
    """The packages that a module imports, ours by their room."""
    room = path.relative_to(ROOT).parts[0]
    depth = len(path.relative_to(ROOT).parts) - 1
    tree = ast.parse(path.read_text("utf-8"))
    checking = {id(n) for i in ast.walk(tree) if isinstance(i, ast.If) and "TYPE_CHECKING" in ast.dump(i.test)
                for n in ast.walk(i)}  # fmt: skip
    found = set()
    for node in tree.body if top_level_only else ast.walk(tree):
        if id(node) in checking:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0:
                found.add(node.module or "")
            elif node.level > depth:
                found |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
            else:
                found.add(room)
    return {name.removeprefix("mks.").split(".")[0] for name in found}


def modules(room: str) -> list[Path]:
    """All Python files of a room."""
    return sorted((ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", ALLOWED)
def test_no_room_looks_up(room: str) -> None:
    """A module imports its own room and those below."""
    assert modules(room)
    for path in modules(room):
        above = imported(path) & (set(ALLOWED) - ALLOWED[room] - {room})
        assert not above, f"{path.name} imports {above}"


@pytest.mark.parametrize("room", LATE)
def test_heavy_packages_come_late(room: str) -> None:
    """The checker starts without JAX, rich or numpy."""
    for path in modules(room):
        heavy = imported(path, top_level_only=True) & LATE[room]
        assert not heavy, f"{path.name} imports {heavy} when it is imported"


def test_the_rule_can_say_no(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the language that reaches for the server, or for JAX, is seen."""
    bad = tmp_path / "dsl" / "bad.py"
    bad.parent.mkdir()
    bad.write_text("import jax\nfrom ..server import engine\n")
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    assert imported(bad) == {"jax", "server"}
