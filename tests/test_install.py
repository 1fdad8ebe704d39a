"""The README's first commands on a machine without compilers: only mks is built, and it serves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import httpx
import pytest
from helpers import children, readme

COMPILERS = re.compile(
    r"(.*-)?(cc|c\+\+|gcc|g\+\+|cpp|clang|clang\+\+|c89|c99|cmake|ninja|make|ld|as|rustc|cargo)([-.\d]*)"
)
FIRST, SECOND = (c for c in readme.blocks() if " && .venv/bin/mks serve " in c)
(TEST,) = (c for c in readme.blocks() if ".venv/bin/pytest" in c)


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """An environment in which all programs are there but compilers, and `python3` is this Python."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in folder.iterdir() if folder.is_dir() else ():
            link = programs / program.name
            hidden = COMPILERS.fullmatch(program.name) or program.name.startswith(("python", "pip", "uv"))
            if not hidden and not link.is_symlink() and os.access(program, os.X_OK):
                link.symlink_to(program)
    python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    (programs / "python3").write_text(f'#!/bin/sh\nexec {python} "$@"\n')
    (programs / "python3").chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VIRTUAL_ENV", "PYTHON"))}
    return kept | {
        "PATH": str(programs),
        "CC": "/none",
        "CXX": "/none",
        "JAX_PLATFORMS": "cpu",
        "PIP_LOG": str(tmp_path / "pip.log"),
        "UV_PYTHON_PREFERENCE": "only-system",
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """What is in a clone, as files of its own, as building leaves some beside them."""
    folder = tmp_path / "clone"
    left = shutil.ignore_patterns(".git", ".venv", "build", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis")
    shutil.copytree(readme.ROOT, folder, ignore=left, symlinks=True)
    return folder


def missing(root: Path) -> set[str]:
    """Folders of code that no installed package is, and packages that are no folder."""
    settings = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    said = {settings["package-dir"].get(package, package) for package in settings["packages"]}
    found = {path.parent for room in readme.ROOMS for path in (root / room).rglob("*.py")}
    return {str(folder.relative_to(root)) for folder in found} ^ said


def test_every_folder_is_installed(tmp_path: Path) -> None:
    """A wheel has all that an editable installation finds in its place; a folder that was forgotten is seen."""
    assert missing(readme.ROOT) == set()
    (tmp_path / "dsl" / "new").mkdir(parents=True)
    (tmp_path / "dsl" / "new" / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text('[tool.setuptools]\npackages = ["mks.old"]\npackage-dir = {}\n')
    assert missing(tmp_path) == {"dsl/new", "mks.old"}


def test_compilers_are_hidden(bare: dict[str, str]) -> None:
    """And other programs are not."""
    found = [name for name in ("cc", "gcc", "g++", "clang", "cmake", "make") if shutil.which(name, path=bare["PATH"])]
    assert found == []
    assert shutil.which("bash", path=bare["PATH"])
    said = children.run(["bash", "-c", "python3 --version"], env=bare, capture_output=True, text=True).stdout
    assert said == "Python {}.{}.{}\n".format(*sys.version_info)


def shell(command: str, source: Path, env: dict[str, str]) -> None:
    done = children.run(
        ["bash", "-c", command], 900, cwd=source, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:]


def built(tmp_path: Path) -> set[str]:
    """The packages that pip built from source."""
    return set(re.findall(r"Building (?:wheel|editable) for (\S+)", (tmp_path / "pip.log").read_text("utf-8")))


@pytest.mark.thorough
def test_serving(source: Path, tmp_path: Path, bare: dict[str, str]) -> None:
    """The first command installs, serves and answers."""
    install, _, serve = FIRST.rpartition(" && ")
    shell(install, source, bare)
    assert built(tmp_path) == {"mks"}
    answers(serve, source, bare)


@pytest.mark.thorough
def test_the_tests_install(source: Path, tmp_path: Path, bare: dict[str, str]) -> None:
    """What the test command installs is all that tests need; they themselves run elsewhere, but for a few."""
    install, _, pytest_ = TEST.rpartition(" && ")
    shell(install, source, bare)
    assert built(tmp_path) == {"mks"}
    shell(f"{pytest_} tests/dsl/text tests/models/test_demo.py", source, bare)


@pytest.mark.thorough
def test_uv(source: Path, tmp_path: Path, bare: dict[str, str]) -> None:
    """The same with uv, which is here a package of an environment of its own."""
    shell(f"python3 -m venv {tmp_path}/uv && {tmp_path}/uv/bin/pip install -q uv", source, bare)
    with_uv = bare | {"PATH": f"{tmp_path}/uv/bin:{bare['PATH']}"}
    install, _, serve = SECOND.rpartition(" && ")
    shell(install, source, with_uv)
    answers(serve, source, with_uv)


def answers(serve: str, source: Path, env: dict[str, str]) -> None:
    """A server that was just installed gives a chat's answer."""
    command = ["bash", "-c", f"exec {serve} --port 0"]
    with subprocess.Popen(command, cwd=source, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = iter(process.stderr.readline, "")
            heard: list[str] = []
            for line in said:
                heard.append(line)
                if line.startswith("serving "):
                    break
            else:
                pytest.fail("".join(heard))
            url = heard[-1].split()[-1]
            body = {"model": "smollm2", "messages": [{"role": "user", "content": "What is the capital of France?"}]}
            answer = httpx.post(f"{url}/chat/completions", json=body, timeout=600).json()
        finally:
            process.terminate()
    assert "Paris" in answer["choices"][0]["message"]["content"]
