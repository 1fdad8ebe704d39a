"""What is installed is what is here."""

import zipfile
from pathlib import Path

from helpers import readme

# Where `pyproject.toml` says that the package `mks` itself lies.
PACKAGE = "mks/backends/python/"
DATA = (".py", ".lark", ".mks", ".md", ".html", ".js", ".css", ".json")


def test_the_wheel_holds_every_file_of_every_room(tmp_path: Path) -> None:
    """Modules and package data, at the same places under `mks`; `mks` itself is one of our folders."""
    held = {name for name in zipfile.ZipFile(readme.wheel(tmp_path)).namelist() if name.startswith("mks/")}
    here = {
        f"mks/{path.relative_to(readme.ROOT).as_posix()}".replace(PACKAGE, "mks/")
        for room in readme.ROOMS
        for path in (readme.ROOT / room).rglob("*")
        if path.suffix in DATA and "__pycache__" not in path.parts
    }
    assert here - held == set()
    assert held - here == set()
