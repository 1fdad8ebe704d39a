"""Imports go only downward, between rooms and inside them: in the order that each folder's `__init__` states."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("grammar", "dsl", "models", "backends", "server")
LATE = {"dsl": {"jax", "rich", "numpy"}, "models": {"jax"}}
MOST = 23  # modules and folders in a folder
LONGEST = 350  # lines of a module: about 200 is usual
LONGEST_FUNCTION = 60
LONG_FUNCTIONS = {"dsl/program/verify/copies.py copies_machine", "dsl/program/verify/rings.py ring_machine"}

type ModuleName = tuple[str, ...]


def modules(room: str) -> list[Path]:
    """All Python files of a room."""
    return sorted((ROOT / room).rglob("*.py"))


def folders() -> list[Path]:
    """All packages."""
    return [path.parent for room in ROOMS for path in modules(room) if path.name == "__init__.py"]


def name_of(path: Path) -> ModuleName:
    """A module's folders and name, from the root on; a package's end with `__init__`."""
    return path.relative_to(ROOT).with_suffix("").parts


def imports(path: Path) -> Iterator[ModuleName]:
    """Modules of ours that one imports, wherever it does: for types only, or late, too."""
    folder = name_of(path)[:-1]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("mks.")):
            above = folder[: len(folder) - node.level + 1] if node.level else ()
            start = (*above, *(node.module or "").removeprefix("mks.").split(".")) if node.module else above
            for alias in node.names:
                full = ROOT.joinpath(*start, alias.name)
                yield (*start, alias.name) if full.with_suffix(".py").exists() or full.is_dir() else start


def stated(folder: Path) -> list[str]:
    """What a folder holds, in the order that its `__init__` states."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or ""
    found = re.search(r"Order of imports: ([^.]*)\.", text)
    return re.findall(r"`(\w+)`", found[1]) if found else []


def children(folder: Path) -> set[str]:
    """The modules and packages of a folder."""
    inner = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    return inner | {path.parent.name for path in folder.glob("*/__init__.py")}


def upward() -> Iterator[str]:
    """Imports that do not go down in the order of the folder where both ends' ways part."""
    orders = {folder.relative_to(ROOT).parts: stated(folder) for folder in folders()} | {(): list(ROOMS)}
    for room in ROOMS:
        for path in modules(room):
            ours = name_of(path)
            for theirs in imports(path):
                depth = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
                order = orders.get(ours[:depth]) if depth is not None else None
                if not order or ours[depth] == "__init__":
                    continue
                if order.index(theirs[depth]) >= order.index(ours[depth]):
                    yield f"{'/'.join(ours)} imports {'/'.join(theirs)}"


def test_imports_go_down() -> None:
    """Nothing is imported that stands behind, anywhere: so there are no cycles."""
    assert list(upward()) == []


@pytest.mark.parametrize(
    "folder", [folder for folder in folders() if folder.name != "ops"], ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_module_has_its_place(folder: Path) -> None:
    """`__init__` names everything that the folder holds, once; and it is not too much."""
    assert sorted(stated(folder)) == sorted(children(folder))
    assert len(children(folder)) <= MOST


def test_modules_are_short() -> None:
    """A module fits into a head."""
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines())
        for room in ROOMS
        for path in modules(room)
    }
    assert {name for name, lines in lengths.items() if lines > LONGEST} == set()


def long_functions(text: str) -> list[str]:
    """Names of the functions that have more lines than `LONGEST_FUNCTION`."""
    functions = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return [n.name for n in functions if n.end_lineno and n.end_lineno - n.lineno >= LONGEST_FUNCTION]


def test_functions_are_short() -> None:
    """So does a function; those of tests too."""
    paths = [path for room in (*ROOMS, "tests") for path in modules(room)]
    found = {f"{path.relative_to(ROOT)} {name}" for path in paths for name in long_functions(path.read_text("utf-8"))}
    assert found <= LONG_FUNCTIONS


def test_a_long_function_is_seen() -> None:
    """One line more than is allowed is seen."""
    lines = "    x = 1\n" * (LONGEST_FUNCTION - 1)
    assert long_functions(f"def f():\n{lines}") == []
    assert long_functions(f"def f():\n{lines}    return x\n") == ["f"]


def top_level(path: Path) -> set[str]:
    """Packages that are not ours and that importing a module imports, but for types."""
    tree = ast.parse(path.read_text("utf-8"))
    found = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module or "")
    return {name.split(".")[0] for name in found}


@pytest.mark.parametrize("room", LATE)
def test_heavy_packages_come_late(room: str) -> None:
    """The checker starts without JAX, rich or numpy."""
    for path in modules(room):
        heavy = top_level(path) & LATE[room]
        assert not heavy, f"{path.name} imports {heavy} when it is imported"


def test_the_rule_can_say_no(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the language that reaches for the server, or for JAX, or for one behind it, is seen."""
    for name, text in {
        "dsl/__init__.py": '"""Order of imports: `good`, `bad`."""',
        "dsl/good.py": "from .bad import x",
        "dsl/bad.py": "import jax\n\ndef f():\n    from ..server import engine\n    from mks.server import engine\n",
        "server/__init__.py": "",
        "server/engine.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)

    assert list(upward()) == [*["dsl/bad imports server/engine"] * 2, "dsl/good imports dsl/bad"]
    assert top_level(tmp_path / "dsl" / "bad.py") == {"jax"}
