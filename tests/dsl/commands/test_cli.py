"""The `mks` command."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from helpers import children
from helpers.definitions import FOLDER, text
from helpers.oracles import DATA

from mks.dsl.codes import pages
from mks.dsl.commands import cli
from mks.dsl.source import Source
from mks.dsl.text.parse import parse

SMALL = str(FOLDER / "smollm2.mks")


def mks(*arguments: str, **changes: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a process of its own."""
    script = "import sys; from mks.dsl.commands.cli import main; sys.exit(main())"
    environment = {**os.environ, **changes}
    return children.run([sys.executable, "-c", script, *arguments], capture_output=True, seconds=60, env=environment)


def failing(argv: list[str]) -> int:
    """A command with a bug."""
    raise RuntimeError("something odd")


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Help lists every command, those of other packages too, and shows examples."""
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert [
        word for word in ("check", "plan", "fmt", "explain", "lsp", "new", "run", "serve") if f"\n  {word} " not in out
    ] == []
    assert "examples:" in out


@pytest.mark.parametrize("command", ["check", "plan", "fmt", "explain", "lsp", "new", "run", "serve"])
def test_help_of_a_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command's help shows examples."""
    assert cli.main([command, "--help"]) == 0
    assert "examples:" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["chekc", SMALL],
        ["check"],
        ["check", SMALL, "--size", "d"],
        ["check", SMALL, "--size", "d=x"],
        ["check", SMALL, "--adopt"],
        ["check", SMALL, "--nonsense"],
        ["plan", SMALL, "--rows", "many"],
        ["plan", SMALL, "--adopt"],
        ["fmt"],
        ["explain", "E999"],
        ["new"],
    ],
)
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage gives status 2, a message on the error stream, and nothing else."""
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err


def test_a_misspelt_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The nearest command is proposed, other packages' included."""
    assert cli.main(["chekc"]) == 2
    assert "did you mean `check`?" in capsys.readouterr().err
    assert cli.main(["serv"]) == 2
    assert "did you mean `serve`?" in capsys.readouterr().err


def test_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sound file gives status 0 and its report; one with errors gives status 1 and all of them."""
    assert cli.main(["check", SMALL]) == 0
    assert "no errors" in capsys.readouterr().out
    bad = tmp_path / "bad.mks"
    bad.write_text(text("smollm2").replace("theta = theta", "theta = thet").replace("size d ", "sized "))

    assert cli.main(["check", str(bad)]) == 1
    out = capsys.readouterr().out
    assert "error[E022]" in out
    assert "error[E101]" in out
    assert out.rstrip().endswith("errors")


def test_check_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One object holds diagnostics and schedules, with errors as without, and for a file that cannot be read."""
    assert cli.main(["check", SMALL, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["diagnostics"] == []
    assert [schedule["name"] for schedule in said["schedules"]] == ["one"]
    bad = tmp_path / "bad.mks"
    bad.write_text("mks 1\nmodel m {\n  size d : 3\n}\n")

    assert cli.main(["check", str(bad), "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["diagnostics"]
    assert found["code"] == "E017"
    assert found["spans"][0]["file"] == str(bad)
    assert (found["spans"][0]["line"], found["spans"][0]["column"]) == (3, 10)
    assert cli.main(["check", str(tmp_path / "none"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["diagnostics"][0]["code"] == "E003"


def test_check_at_other_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    """Sizes from the command line count, and are checked."""
    assert cli.main(["check", SMALL, "--size", "layers=2", "--json"]) == 0
    smaller = json.loads(capsys.readouterr().out)["schedules"][0]["rows"][0]["hbm_bytes"]["total"]
    assert cli.main(["check", SMALL, "--json"]) == 0
    assert smaller < json.loads(capsys.readouterr().out)["schedules"][0]["rows"][0]["hbm_bytes"]["total"]
    assert cli.main(["check", SMALL, "--size", "q_heads=7"]) == 1
    assert "E113" in capsys.readouterr().out


def test_check_from_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`-` reads standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"mks 2\n")))
    assert cli.main(["check", "-"]) == 1
    assert "--> <stdin>:1:5" in capsys.readouterr().out


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    """A code's page is printed, in either case of letters; without a code all are listed."""
    assert cli.main(["explain", "e017"]) == 0
    assert capsys.readouterr().out == pages()["E017"].text
    assert cli.main(["explain"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(pages())


def test_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A new definition checks, is in canonical layout, and never overwrites a file."""
    monkeypatch.chdir(tmp_path)
    for name, model in (("tiny", "tiny"), ("7 b-q.mks", "_7_b_q"), ("d.mks", "d"), ("for", "for")):
        assert cli.main(["new", name]) == 0
        file = name if name.endswith(".mks") else f"{name}.mks"
        assert cli.main(["check", file]) == 0
        assert cli.main(["fmt", "--check", file]) == 0
        assert f"model {model} {{" in Path(file).read_text()
    before = Path("tiny.mks").read_text()
    capsys.readouterr()

    assert cli.main(["new", "tiny"]) == 1
    assert "exists already" in capsys.readouterr().err
    assert cli.main(["new", "absent/tiny"]) == 1
    assert Path("tiny.mks").read_text() == before


def test_fmt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files are rewritten only where needed; `--check` and `--diff` change nothing; rights and links are kept."""
    file, link = tmp_path / "a.mks", tmp_path / "link.mks"
    wide = 'mks 1\nuse   "b.mks"\n'
    file.write_bytes(b"\xef\xbb\xbf" + wide.encode())
    file.chmod(0o640)
    link.symlink_to(file)

    assert cli.main(["fmt", "--check", "--diff", str(file)]) == 1
    out = capsys.readouterr().out
    assert '-use   "b.mks"\n+use "b.mks"\n' in out
    assert "would change" in out
    assert file.read_bytes().endswith(wide.encode())
    assert cli.main(["fmt", str(link)]) == 0
    assert file.read_bytes() == b'mks 1\nuse "b.mks"\n'
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    time = file.stat().st_mtime_ns
    assert cli.main(["fmt", "--check", str(file)]) == 0
    assert cli.main(["fmt", str(file)]) == 0
    assert file.stat().st_mtime_ns == time
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["a.mks", "link.mks"]


def test_fmt_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file with errors is left as it is, and the files behind it are formatted all the same."""
    bad, good = tmp_path / "bad.mks", tmp_path / "good.mks"
    bad.write_text("mks 1\nmodel   m {\n")
    good.write_text("mks   1")

    assert cli.main(["fmt", str(bad), str(good)]) == 1
    assert "error[E011]" in capsys.readouterr().err
    assert bad.read_text() == "mks 1\nmodel   m {\n"
    assert good.read_text() == "mks 1\n"


def test_fmt_of_standard_input(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """`-` reads standard input and prints the result, line ends as they were."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"mks   1\r\n# \xc3\xa9\r\n")))
    assert cli.main(["fmt", "-"]) == 0
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == b"mks 1\r\n# \xc3\xa9\r\n"


def test_fmt_that_cannot_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed write leaves the file and nothing beside it."""
    file = tmp_path / "a.mks"
    file.write_text("mks   1")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert cli.main(["fmt", str(file)]) == 1
    assert file.read_text() == "mks   1"
    assert list(tmp_path.iterdir()) == [file]


def test_internal_errors(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A bug is told as one, with what a report needs, and its traceback only on request."""
    monkeypatch.setattr(cli, "find", lambda word: failing)
    monkeypatch.delenv("MKS_DEBUG", raising=False)

    assert cli.main(["check", "a.mks"]) == 1
    err = capsys.readouterr().err
    assert '"E900"' not in err
    assert "error[E900]: this is a bug in mks" in err
    assert "RuntimeError: something odd" in err
    assert "arguments: check a.mks" in err
    assert "Traceback" not in err
    with pytest.raises(RuntimeError):
        cli.main(["check", "--debug", "a.mks"])
    monkeypatch.setenv("MKS_DEBUG", "1")
    with pytest.raises(RuntimeError):
        cli.main(["check", "a.mks"])


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt(), 130), (SystemExit(2), 2)])
def test_interruption(error: BaseException, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted command has the status that shells expect, and says nothing."""

    def stop(argv: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "find", lambda word: stop)
    assert cli.main(["check"]) == status


def test_a_reader_that_goes_away() -> None:
    """A closed pipe ends the command quietly."""
    script = f"import sys; from mks.dsl.commands.cli import main; sys.exit(main(['check', {SMALL!r}, '--json']))"
    read, write = os.pipe()
    os.close(read)
    child = children.run([sys.executable, "-c", script], stdout=write, stderr=subprocess.PIPE, seconds=60)
    os.close(write)

    assert child.returncode == cli.NOBODY_READS
    assert child.stderr == b""


def test_a_terminal_that_lacks_characters(tmp_path: Path) -> None:
    """What the terminal cannot show is escaped, and lone surrogates in arguments do no harm."""
    file = tmp_path / "a.mks"
    file.write_text("mks 1\nmodel m {\n  size d × 3\n}\n", "utf-8")

    child = mks("check", str(file), PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert child.returncode == 1
    assert b"\\xd7" in child.stdout
    assert mks("check", os.fsdecode(b"\xff.mks")).returncode == 1


def test_broken_commands_of_other_packages(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A package's command that cannot be imported does not hide the help, and fails alone."""
    broken = EntryPoint("odd", "no_such_package:run", cli.GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [broken])

    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "odd" in out
    assert "cannot be loaded" in out
    assert cli.main(["odd"]) == 1
    said = "error: the command `odd` cannot be loaded: `no_such_package:run` fails: ModuleNotFoundError: "
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["a:f", "b:f"], "two packages bring it: `a:f` and `b:f`"),
        (["zz R!!"], "`zz R!!` is no `module:object`"),
        (["sys:exit.no"], "`sys:exit.no` fails: AttributeError"),
        (["sys:path"], "`sys:path` is no function, but list"),
    ],
)
def test_commands_that_cannot_be_loaded(
    values: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They say why, and are no bug of ours."""
    points = [EntryPoint("odd", value, cli.GROUP) for value in values]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: points)

    assert cli.main(["odd"]) == 1
    assert said in capsys.readouterr().err


def test_commands_of_ours_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another package's command of the same name is left out."""
    points = [EntryPoint("run", value, cli.GROUP) for value in ("a:f", "mks.server.commands.entry:run")]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: points)

    assert [point.value for point in cli.others()["run"]] == ["mks.server.commands.entry:run"]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The version is one line."""
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("mks 0.")


@pytest.mark.parametrize("path", [SMALL, str(FOLDER / "kimi_k3.mks")])
def test_check_starts_without_heavy_imports(path: str) -> None:
    """Checking a definition imports neither JAX nor numpy nor rich, and looks for no other packages."""
    heavy = "jax numpy rich importlib.metadata uvicorn starlette hypothesis"
    script = (
        f"import sys; from mks.dsl.commands.cli import main; status = main(['check', {path!r}]);"
        f"print([m for m in '{heavy}'.split() if m in sys.modules], status)"
    )
    child = children.run([sys.executable, "-c", script], capture_output=True, seconds=60, check=True)

    assert child.stdout.decode().splitlines()[-1] == "[] 0"


WORK = """
found = {}
for i in range(400_000):
    found[i % 5003, "x"] = [str(i), i * 7 % 13]
"""


def test_check_is_quick() -> None:
    """The whole process that checks the largest definition takes 1.9 times what a fixed piece of Python does, 0.44 s.

    A processor that others use too is slower for both.
    """

    def used(run: Callable[[], subprocess.CompletedProcess[bytes]]) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run().returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    check, work = [], []
    for _ in range(5):
        check.append(used(lambda: mks("check", str(FOLDER / "kimi_k3.mks"))))
        work.append(used(lambda: children.run([sys.executable, "-c", WORK])))

    assert min(check) < 2.6 * min(work)


@pytest.mark.slow
def test_check_takes_less_than_half_a_second() -> None:
    """The same by the clock; needs a machine that does nothing else."""
    taken = []
    for _ in range(9):
        start = time.perf_counter()
        assert mks("check", str(FOLDER / "kimi_k3.mks")).returncode == 0
        taken.append(time.perf_counter() - start)

    assert min(taken) < 0.5


def test_files_with_any_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a file holds, it is answered with a status and no traceback."""
    for i, data in enumerate([b"", b"\xff\xfe", b"\0" * 100, b"mks 1\0", b'mks 1\nuse "a\0b"\n', b'mks 1\nuse "."\n']):
        file = tmp_path / f"{i}.mks"
        file.write_bytes(data)
        assert cli.main(["check", str(file)]) == 1
        assert "E900" not in "".join(capsys.readouterr())


def test_shipped_template_is_a_model_of_its_own() -> None:
    """The new definition is no copy of a shipped one: it says what its lines are for."""
    from mks.dsl.commands.new import TEMPLATE

    file, found = parse(Source("a", TEMPLATE))
    assert found == []
    assert len(file.comments) >= 6


def test_a_full_disk_is_said() -> None:
    """An output that cannot be written is a message and status 1, no bug."""
    script = "import sys; from mks.dsl.commands.cli import main; sys.exit(main())"
    with open("/dev/full", "w") as full:
        done = children.run(
            [sys.executable, "-c", script, "check", SMALL], stdout=full, stderr=subprocess.PIPE, seconds=60, text=True
        )
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "bug" not in done.stderr


def test_a_size_is_given_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Twice is wrong usage, for every command that takes sizes."""
    for command in (["check", SMALL], ["run", "smollm2", "--ids", "1"], ["serve", "smollm2"]):
        assert cli.main([*command, "--size", "layers=2", "--size", "layers=3"]) == 2
        assert "twice" in capsys.readouterr().err


def test_new_wants_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A name without a letter is refused and nothing is written."""
    monkeypatch.chdir(tmp_path)
    for name in (".", "..", "1"):
        assert cli.main(["new", name]) == 1
        assert "no letter" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", ["nan", "inf", "-1e999"])
def test_constants_are_finite(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A constant that is no finite number is refused, not computed with."""
    assert cli.main(["check", SMALL, "--size", f"eps={value}"]) == 1
    assert "error[E112]: `eps` must be a finite number" in capsys.readouterr().out


@pytest.mark.parametrize(("number", "said"), [("9" * 5000, "E007"), ("1" + "0" * 400, "E112"), ("-1e-6", "E127")])
def test_numbers_of_a_config(number: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Too long to be read, too large to be computed with, or nothing that the op takes."""
    config = tmp_path / "config.json"
    config.write_text(
        (DATA / "qwen3_tiny" / "config.json").read_text().replace('"rms_norm_eps": 1e-06', f'"rms_norm_eps": {number}')
    )
    assert number in config.read_text()
    assert cli.main(["check", str(FOLDER / "qwen3.mks"), "--config", str(config), "--adopt"]) == 1
    assert f"error[{said}]" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["plan", "tune"])
@pytest.mark.parametrize("option", [["--rows", "0"], ["--rows", "-1"], ["--position", "-1"], ["--position", "9" * 30]])
def test_counts_are_usage(command: str, option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """No rows, or a place before the first, is wrong usage to each command."""
    assert cli.main([command, SMALL, *option]) == 2
    assert "usage: mks" in capsys.readouterr().err
