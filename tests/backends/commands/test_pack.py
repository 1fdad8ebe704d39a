"""`mks pack` on the command line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mks.dsl.commands.cli import main
from mks.models.packing.packed import open_packed

DATA = Path(__file__).parents[2] / "data"
MODEL = Path(__file__).parents[3] / "models" / "qwen3.mks"

Go = Callable[..., tuple[int, str, str]]


@pytest.fixture
def go(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Go:
    """Runs it on the small Qwen3; its status, stdout and stderr."""

    def command(*argv: str, model: str = "qwen3", output: str = "packed") -> tuple[int, str, str]:
        words = [model, "--checkpoint", str(DATA / "qwen3_tiny"), "--sizes", "config", "-o", str(tmp_path / output)]
        status = main(["pack", *words, *argv])
        return status, *capfd.readouterr()

    return command


def test_packs_and_says_what(go: Go, tmp_path: Path) -> None:
    """A line for people, an object for programs, and nothing is done twice."""
    status, out, err = go("--dtype", "f32", "--verify")
    assert (status, err) == (0, "")
    assert out.startswith(f"packed qwen3 for `one` into {tmp_path / 'packed'}: 0.00 GB for 1 cores")
    said = json.loads(go("--dtype", "f32", "--json")[1])

    packed = open_packed(tmp_path / "packed")
    assert said.pop("seconds") >= 0
    assert said == {
        "folder": str(tmp_path / "packed"),
        "model": "qwen3",
        "schedule": "one",
        "dtype": "f32",
        "cores": 1,
        "bytes": packed.nbytes,
        "written": 0,
        "resumed": True,
        "verified": False,
    }
    assert "is packed already" in go("--dtype", "f32")[1]


def test_damage_is_found(go: Go, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """By --verify, by --check, which needs no checkpoint, and where weights are loaded."""
    go("--dtype", "f32")
    folder = tmp_path / "packed"
    assert main(["pack", "--check", str(folder)]) == 0
    assert capfd.readouterr().out.startswith(f"{folder} is as it was packed: 0.00 GB of `qwen3` for 1 cores")
    assert main(["pack", "--check", str(folder), "--json"]) == 0
    said = json.loads(capfd.readouterr().out)
    assert (said["model"], said["schedule"], said["cores"]) == ("qwen3", "one", 1)
    path = folder / "core-000.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)

    assert go("--dtype", "f32")[0] == 0
    status, out, err = go("--dtype", "f32", "--verify")
    assert (status, out) == (1, "")
    assert "error[E432]" in err
    assert main(["pack", "--check", str(folder)]) == 1
    assert f"`{path}` is damaged: `vectors " in capfd.readouterr().err
    assert main(["run", "--packed", str(folder), "--ids", "1", "--max-tokens", "1"]) == 1
    assert f"`{path}` is damaged: `vectors " in capfd.readouterr().err


def test_which_schedule(go: Go, tmp_path: Path) -> None:
    """None, several and an unknown one are told, and nothing is written."""
    text = MODEL.read_text("utf-8")
    at = text.index("schedule one")
    (tmp_path / "none.mks").write_text(text[:at])
    (tmp_path / "two.mks").write_text(text + "\n" + text[at:].replace("schedule one", "schedule two"))

    status, _, err = go(model=str(tmp_path / "none.mks"))
    assert status == 1
    assert "error[E435]: `qwen3` has no schedule, which says" in err
    assert "several schedules: `one`, `two`" in go(model=str(tmp_path / "two.mks"))[2]
    assert "has no schedule `too`" in go("--schedule", "too", model=str(tmp_path / "two.mks"))[2]
    assert not (tmp_path / "packed").exists()
    assert go("--schedule", "two", model=str(tmp_path / "two.mks"))[0] == 0
    assert open_packed(tmp_path / "packed").schedule.name == "two"


def test_a_schedule_in_a_file_of_its_own(go: Go, tmp_path: Path) -> None:
    """It uses the model's file, which the folder does not need any more."""
    text = MODEL.read_text("utf-8")
    shutil.copy(MODEL, tmp_path / "model.mks")
    own = text[text.index("schedule one") :].replace("schedule one", "schedule mine")
    (tmp_path / "mine.mks").write_text(f'mks 1\n\nuse "model.mks"\n\n{own}')

    assert go("--schedule", "mine", model=str(tmp_path / "mine.mks"))[0] == 0
    (tmp_path / "model.mks").unlink()
    assert open_packed(tmp_path / "packed").schedule.name == "mine"


def test_what_is_wrong_is_told_without_traceback(go: Go, tmp_path: Path) -> None:
    """An unknown model, sizes that do not agree, another folder, a drafter, what kernels cannot do."""
    assert "E400" in go(model="qwen33")[2]
    status, _, err = go("--size", "layers=3000")
    assert status == 1
    assert "error[E42" in err
    go()
    (tmp_path / "other.mks").write_text(MODEL.read_text("utf-8") + "# another one\n")
    assert "error[E433]" in go(model=str(tmp_path / "other.mks"))[2]
    assert go(model="dspark")[0] == 1
    assert go(model="kimi_k3")[0] == 1


@pytest.mark.parametrize(
    "words",
    [
        "pack",
        "pack qwen3",
        "pack qwen3 -o a --dtype f16",
        "pack qwen3 -o a --size x",
        "pack --check a -o b",
        "pack qwen3 --check a",
        "pack -o a",
    ],
)
def test_wrong_usage_is_status_2(words: str, capfd: pytest.CaptureFixture[str]) -> None:
    """With the usage on stderr."""
    assert main(words.split()) == 2
    assert "usage: mks pack" in capfd.readouterr().err


def test_help_has_examples(capfd: pytest.CaptureFixture[str]) -> None:
    """--help is status 0 and shows whole command lines."""
    assert main(["pack", "--help"]) == 0
    assert "mks pack qwen38 --checkpoint" in capfd.readouterr().out


def test_experts_are_packed(go: Go, tmp_path: Path) -> None:
    """Kimi K3 with a schedule for one core: from the definition's text to what kernels read, experts in four bits."""
    text = MODEL.with_name("kimi_k3.mks").read_text("utf-8")
    one = "schedule one for kimi_k3 {\n  target v5e 1x1\n  rows 1\n  context 256\n}\n"
    (tmp_path / "kimi.mks").write_text(text[: text.index("schedule ironwood16")] + one)
    status, out, err = go(
        "--checkpoint", str(DATA / "kimi_k3_mxfp4_tiny"), "--json", "--verify", model=str(tmp_path / "kimi.mks")
    )
    assert (status, err) == (0, "")
    said, packed = json.loads(out), open_packed(tmp_path / "packed")

    assert (said["schedule"], said["cores"], said["bytes"], said["verified"]) == ("one", 1, packed.nbytes, True)
    layers, experts, *_ = packed.operand("bank moe", 0).shape
    assert (layers, experts) == (packed.instance.values["layers"] - 1, packed.instance.values["experts"])
    assert packed.plain == frozenset()
