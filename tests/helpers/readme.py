"""The commands that the README and the pages of `docs/` print, and places in which they are run."""

from __future__ import annotations

import os
import re
import shlex
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

from helpers import children

ROOT = Path(__file__).parents[2]
ROOMS = ("grammar", "dsl", "models", "backends", "server")
# What stands for the checkpoints that the README names; the first is only as large as its definition says.
CHECKPOINTS = {"Qwen3.8-27B": "qwen38_tp8", "small": "qwen38_tp8"}
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PROGRAM = re.compile(r"(\S*/)?(mks|pip3?|pytest|python3?(\.\d+)?|uv|curl|ruff|mypy|pre-commit) ")


def pages() -> list[Path]:
    """The README first, then what else users and contributors read."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def text() -> str:
    """The README."""
    return (ROOT / "README.md").read_text("utf-8")


def _texts() -> list[str]:
    """Pages whose commands are listed; those of recipes are run by `tests/test_recipes.py`."""
    return [page.read_text("utf-8") for page in pages() if page.name != "extending.md"]


def fences(text: str) -> list[tuple[str, str]]:
    """The fenced blocks of a page, each with its language, which may be empty."""
    return _FENCE.findall(text)


def blocks() -> list[str]:
    """Commands on lines of their own, without comments, each once."""
    found = (block for text in _texts() for kind, block in fences(text) if kind == "sh")
    return list(dict.fromkeys(command for block in found for command in _commands(block)))


def _commands(block: str) -> Iterator[str]:
    """A command ends with its line, unless a quotation is open there."""
    begun = ""
    for line in block.splitlines():
        begun = f"{begun}\n{line}" if begun else line
        try:
            words = shlex.split(begun, comments=True)
        except ValueError:
            continue
        if words:
            yield re.sub(r"\s+# .*$", "", begun)
        begun = ""


def prose(text: str) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", text)


def spans() -> list[str]:
    """Commands within sentences and tables, synopses among them."""
    found = [span for text in _texts() for span in re.findall(r"`([^`\n]+)`", prose(text))]
    return list(dict.fromkeys(each.replace(r"\|", "|") for each in found if _PROGRAM.match(each)))


def is_synopsis(command: str) -> bool:
    """Whether it says what could be typed: words in capitals, choices, options in brackets."""
    return re.search(r"\[-|\||\.\.\.|\b[A-Z]{3,}\b", command) is not None


def clone(folder: Path) -> Path:
    """A folder that shows what a clone has, with this environment as `.venv`; what is written into it stays there."""
    folder.mkdir()
    for name in (*ROOMS, "docs", "tests", "pyproject.toml", "README.md", "CONTRIBUTING.md", "LICENSE", ".ci"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


def wheel(folder: Path) -> Path:
    """Build mks as a wheel, from a copy, as building leaves files behind."""
    source = folder / "source"
    command = f"mkdir {source} && cp -rL {' '.join(ROOMS)} pyproject.toml README.md LICENSE {source}"
    children.run(["bash", "-c", command], cwd=ROOT, check=True)
    line = [sys.executable, *"-m pip wheel -q --no-deps --no-build-isolation -w".split(), folder, "."]
    children.run(line, cwd=source, seconds=300, check=True, stdin=None)
    (built,) = folder.glob("mks-*.whl")
    return built


def installed(folder: Path) -> Path:
    """An environment with that wheel, and beside it what this one has but for mks; its folder of programs."""
    venv.create(folder / "env")
    python = folder / "env" / "bin" / "python"
    line = [sys.executable, "-m", "pip", "--python", python, *"install -q --no-deps --no-index".split()]
    children.run([*line, wheel(folder)], seconds=300, check=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "env")}))
    # A folder that is named there is searched last, and its own `.pth` files, by which this mks is found, are not read.
    (site / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


def environment(home: Path, programs: Path) -> dict[str, str]:
    """Of a user who has the README's checkpoints at home, and whose programs come first."""
    home.mkdir()
    for name, data in CHECKPOINTS.items():
        (home / name).symlink_to(ROOT / "tests" / "data" / data)
    flags = "--xla_force_host_platform_device_count=8"
    path = f"{programs}:{os.environ['PATH']}"
    return os.environ | {
        "HOME": str(home),
        "PATH": path,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": flags,
        "PIP_NO_DEPS": "1",
        "PIP_DRY_RUN": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
    }
