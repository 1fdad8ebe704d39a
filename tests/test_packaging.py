"""What is installed is what is here, and the README's commands are the ones that are run."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("grammar", "dsl", "models", "backends", "server")
DATA = (".py", ".lark", ".mks", ".md", ".html", ".js", ".css", ".json")


def test_the_wheel_holds_every_file_of_every_room(tmp_path: Path) -> None:
    """Modules and package data, at the same places under `mks`."""
    source = tmp_path / "source"  # a build leaves files beside what it builds
    source.mkdir()
    for room in ROOMS:
        shutil.copytree(ROOT / room, source / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
        ".",
    ]
    subprocess.run(command, cwd=source, check=True, timeout=300, stdin=subprocess.DEVNULL)
    (wheel,) = tmp_path.glob("mks-*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("mks/")}
    here = {
        f"mks/{path.relative_to(ROOT).as_posix()}"
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.suffix in DATA and "__pycache__" not in path.parts
    }
    assert here - held == set()
    assert held - here == set()


def test_the_readme_says_what_ci_runs() -> None:
    """The test command stands word for word in both."""
    commands = re.findall(r"```sh\n(.*?)\n```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    (test_command,) = [c for c in commands if c.endswith("/pytest")]
    assert test_command in (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    assert sum(c.startswith("python3.12 -m venv") for c in commands) == 2


def test_the_readme_shows_what_the_checker_says(tmp_path: Path) -> None:
    """The error in the first definition is the tool's own text."""
    script = Path(sys.executable).with_name("mks")
    subprocess.run([script, "new", "tiny.mks"], cwd=tmp_path, check=True, timeout=60, capture_output=True)
    tiny = tmp_path / "tiny.mks"
    tiny.write_text(tiny.read_text("utf-8").replace("heads(wk @ x, kv_heads)", "heads(wk @ x, q_heads)"), "utf-8")
    said = subprocess.run([script, "check", "tiny.mks"], cwd=tmp_path, timeout=60, capture_output=True, text=True)
    assert said.returncode == 1
    error = said.stdout.split("\n\n")[0]
    assert error.startswith("error[E107]")
    assert error in (ROOT / "README.md").read_text("utf-8")
