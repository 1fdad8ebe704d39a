"""The same linters, in the same versions, run before a commit, in CI and by hand; and all folders are installed."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from helpers import readme

ROOT = readme.ROOT


def linters() -> list[str]:
    """What `.ci/run` runs besides tests, as one line each."""
    text = (ROOT / ".ci" / "run").read_text("utf-8").replace("\n.venv/bin/mypy", " && .venv/bin/mypy")
    return [
        line
        for line in text.splitlines()
        if re.search(r"\.venv/bin/(ruff|mypy|mks) \S|\.venv/bin/mypy$", line) and "pip" not in line
    ]


def hooks(config: str) -> list[str]:
    """The commands of a pre-commit configuration, of a shell's those that it is given."""
    entries = re.findall(r"^ +entry: (.*)$", config, re.MULTILINE)
    return [re.sub(r"^bash -c '(.*)'$", r"\1", entry) for entry in entries]


def test_hooks_run_what_ci_runs() -> None:
    """In its order; and the page for contributors lists the same."""
    assert len(linters()) == 4
    assert hooks((ROOT / ".pre-commit-config.yaml").read_text("utf-8")) == linters()
    assert set(linters()) <= set(readme.blocks())


def test_the_workflow_runs_ci() -> None:
    """With the Python that the project names."""
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    assert re.findall(r"^ +- run: (.*)$", text, re.MULTILINE) == [".ci/run"]
    (named,) = re.findall(r"python-version-file: (.*)", text)
    assert (ROOT / named).read_text("utf-8").strip() == "3.12"


def project() -> dict[str, Any]:
    """`pyproject.toml`."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def test_every_folder_is_a_package() -> None:
    """That is installed, from where it is."""
    folders = {
        path.parent.relative_to(ROOT).as_posix() for room in readme.ROOMS for path in (ROOT / room).rglob("__init__.py")
    }
    setuptools = project()["tool"]["setuptools"]
    assert set(setuptools["package-dir"].values()) == folders
    assert set(setuptools["packages"]) == setuptools["package-dir"].keys()


def test_linters_are_pinned() -> None:
    """To one version each."""
    wanted = project()["project"]["optional-dependencies"]["test"]
    for linter in ("ruff", "mypy"):
        assert sum(re.fullmatch(rf"{linter}==[\d.]+", each) is not None for each in wanted) == 1
