"""`mks verify` on the command line: each part of interpreted kernels against the reference, in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import children
from helpers.tiers import thorough_but

from mks.dsl.commands.cli import main

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data"
SOURCE = "import sys; from mks.dsl.commands.cli import main; sys.exit(main())"
ONE = "schedule one for {} {{\n  target v5e 1x1\n  rows 1, 2\n  context 4096\n}}\n"


@pytest.fixture
def file(tmp_path: Path) -> Any:
    """A shipped definition with a bare schedule for one core in the place of its own."""

    def write(name: str) -> str:
        text = (ROOT / "models" / f"{name}.mks").read_text("utf-8")
        path = tmp_path / f"{name}.mks"
        path.write_text(text[: text.index("\nschedule ")] + "\n" + ONE.format(name))
        return str(path)

    return write


def run(file: str, data: str, *options: str, seconds: float = 180) -> subprocess.CompletedProcess[str]:
    """The command on a folder of the tests' data."""
    line = [sys.executable, "-c", SOURCE, "verify", file, "--checkpoint", str(DATA / data), "--sizes", "config"]
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"} | {"JAX_PLATFORMS": "cpu"}
    done = children.run([*line, *options], capture_output=True, text=True, seconds=seconds, env=env)
    assert "Traceback" not in done.stderr
    return done


def said(*args: str, seconds: float = 180) -> dict[str, Any]:
    """What it says as JSON; the exit status is that of what it says."""
    done = run(*args, "--json", seconds=seconds)
    assert done.stdout, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if found["ok"] else 1)
    return found


def sound(found: dict[str, Any], parts: set[str]) -> None:
    """Everything is the same, and was looked at in all layers."""
    assert (found["ok"], found["red"]) == (True, [])
    assert {part["part"] for part in found["parts"]} == {*parts, "step"}
    for part in found["parts"]:
        assert part["worst"]["rms"] < 1e-4
        assert part["carried"]["rms"] < 1e-3
        assert part["compared"] > part["layers"]
    assert all(choice["kernel"] == choice["reference"] for choice in found["ids"])


@pytest.mark.thorough
def test_a_model_of_attention(file: Any) -> None:
    """Two sequences at four positions of their own, the last one beyond a tile of the cache."""
    found = said(file("qwen3"), "qwen3_tiny", "--rows", "2")

    sound(found, {"attention", "mlp"})
    assert [choice["position"] for choice in found["ids"]] == [0, 1, 1, 2, 2, 3, 300, 301]
    assert (found["interpreted"], found["cores"], found["rows"], found["dtype"]) == (True, 1, 2, "f32")


TILES = (("mlp.down", "mlp"), ("attention", "attention"), ("step", "step"))


@pytest.mark.parametrize(("name", "part"), thorough_but(TILES[:1], TILES))
def test_a_wrong_tile_is_found_where_it_is(file: Any, name: str, part: str) -> None:
    """That part differs, and no other: the reference's parts get what the kernel's got."""
    found = said(file("qwen3"), "qwen3_tiny", "--corrupt", name, "--tokens", "5,6", "--positions", "0,1")

    assert (found["ok"], found["red"]) == (False, [part])
    (bad,) = (p for p in found["parts"] if not p["ok"])
    assert (bad["part"], bad["worst"]["layer"]) == (part, None if part == "step" else 0)
    assert bad["worst"]["rms"] > 0.01


@pytest.mark.thorough
def test_people_are_told(file: Any) -> None:
    """A table with every part, the ids that differ, and where the part stands in the file."""
    path = file("qwen3")
    done = run(path, "qwen3_tiny", "--corrupt", "mlp", "--tokens", "5", "--positions", "3")

    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert [line.split()[-1] for line in lines if line.split()[0] in ("step", "attention", "mlp")][:3] == [
        "same",
        "same",
        "differs",
    ]
    number = next(i for i, line in enumerate(Path(path).read_text().splitlines(), 1) if "part mlp" in line)
    assert f"`mlp` ({path}:{number}) differs from the reference" in done.stdout.replace("\n", "")
    assert "the kernels are interpreted" in done.stderr


@pytest.mark.thorough
def test_a_model_with_states(file: Any) -> None:
    """Recurrent states after each step, too; and a wrong tile of what makes them is found."""
    path = file("qwen38")
    sound(said(path, "qwen38_tiny"), {"delta", "attention", "mlp"})
    assert said(path, "qwen38_tiny", "--corrupt", "delta", "--positions", "0,1")["red"] == ["delta"]


@pytest.mark.slow
def test_experts(file: Any) -> None:
    """Kimi K3 in four bits: all parts are the same, and wrong tiles of routers, experts and latents are found."""
    path = file("kimi_k3")
    parts = {"enter", "leave", "kda", "mla", "dense", "moe"}
    sound(said(path, "kimi_k3_mxfp4_tiny", seconds=400), parts)
    for name, part in (("moe", "moe"), ("moe.gate", "moe"), ("moe.down", "moe"), ("mla", "mla"), ("kda.wo", "kda")):
        found = said(path, "kimi_k3_mxfp4_tiny", "--corrupt", name, "--positions", "1,2", seconds=400)
        assert found["red"] == [part], name


@pytest.mark.slow
def test_experts_in_blocks(file: Any) -> None:
    """The same where the schedule stores them as fp8: a wrong tile of one is found."""
    path = Path(file("kimi_k3"))
    line = "store moe.gate, moe.up, moe.down as fp8 block 256"
    path.write_text(path.read_text().replace("  rows 1, 2\n", f"  rows 1, 2\n  {line}\n"))
    found = said(str(path), "kimi_k3_mxfp4_tiny", "--corrupt", "moe.gate", "--positions", "1,2", seconds=400)
    assert found["red"] == ["moe"]


@pytest.mark.slow
def test_eight_cores() -> None:
    """On virtual devices, in another process, which is told; sums that travel in bf16 may differ by more."""
    done = run("qwen38", "qwen38_tp8", "--positions", "0,1", "--json", seconds=500)
    found = json.loads(done.stdout)

    assert "schedule `ironwood4` is for 8 cores: going on in a process with as many virtual devices" in done.stderr
    assert (done.returncode, found["ok"], found["cores"], found["limits"]["rms"]) == (0, True, 8, 0.01)
    assert all(part["worst"]["cosine"] > 0.9999 for part in found["parts"])


@pytest.mark.slow
def test_narrow_numbers(file: Any) -> None:
    """In bf16, where values may be rounded to the other side."""
    found = said(file("qwen38"), "qwen38_tp8", "--dtype", "bf16", "--positions", "0,1,300", seconds=400)
    assert (found["ok"], found["dtype"]) == (True, "bf16")


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--corrupt", "mpl"], 1, "nothing multiplies in `mpl`: did you mean"),
        (["--positions", "4096"], 1, "position 4096 is beyond the schedule's context, 4096"),
        (["--tokens", "1,99999"], 1, "`tokens` holds 99999"),
        (["--prompt", "hello"], 1, "has no tokenizer"),
        (["--schedule", "two"], 1, "has no schedule `two`"),
        (["--rows", "0"], 2, "'0' is not a whole number of 1 or more"),
    ],
)
def test_what_cannot_be(
    file: Any, capfd: pytest.CaptureFixture[str], options: list[str], status: int, message: str
) -> None:
    """It is said in a line."""
    line = [file("qwen3"), "--checkpoint", str(DATA / "qwen3_tiny"), "--sizes", "config", *options]
    assert main(["verify", *line]) == status
    assert message in capfd.readouterr().err
