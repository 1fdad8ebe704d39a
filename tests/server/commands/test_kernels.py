"""Models by kernels, from the command line; there is no TPU, so they are interpreted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest
from helpers import children
from helpers.cases import DATA
from helpers.definitions import text
from helpers.schedules import ONE, kimi

from mks.backends.opening.load import open_model
from mks.dsl.commands.cli import main

from ..conftest import CHAT_TINY

MODEL = Path(__file__).parents[3] / "models" / "qwen3.mks"
QWEN3 = ["--checkpoint", str(DATA / "qwen3_tiny"), "--sizes", "config"]
SOURCE = "import sys; from mks.dsl.commands.cli import main; sys.exit(main())"


def said(capfd: pytest.CaptureFixture[str], *options: str) -> str:
    """What a run that cannot be says on stderr."""
    assert main(["run", *options, "--ids", "1,2", "--max-tokens", "2"]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return err


def test_a_schedule_is_for_kernels(capfd: pytest.CaptureFixture[str]) -> None:
    """It says nothing to the reference, and it must be one of the model's."""
    assert "choose `pallas` as the backend" in said(capfd, "smollm2", "--schedule", "one")
    err = said(capfd, "smollm2", "--backend", "pallas", "--schedule", "two")
    assert "`smollm2` has no schedule `two`" in err
    assert "E435" in err


def test_shares_are_checked_at_the_checkpoints_sizes(capfd: pytest.CaptureFixture[str]) -> None:
    """Six heads on eight cores, whose keys lie elsewhere: told before anything is read."""
    sizes = ["--checkpoint", str(DATA / "qwen38_tiny"), "--sizes", "config"]
    err = said(capfd, "qwen38", *sizes, "--backend", "pallas")
    assert "E213" in err
    assert "core 3 has heads of `q_heads`" in err


def test_as_many_devices_as_cores(capfd: pytest.CaptureFixture[str]) -> None:
    """Otherwise it is told how a CPU can have them."""
    sizes = ["--checkpoint", str(DATA / "qwen38_tp8"), "--sizes", "config"]
    err = said(capfd, "qwen38", *sizes, "--backend", "pallas")
    assert "schedule `ironwood4` is for 8 cores" in err
    assert "XLA_FLAGS=--xla_force_host_platform_device_count=8" in err


@pytest.fixture
def packed(tmp_path: Path) -> str:
    """A packed model's folder."""
    folder = str(tmp_path / "packed")
    assert main(["pack", "qwen3", *QWEN3, "--dtype", "f32", "-o", folder]) == 0
    return folder


def test_what_was_packed_stays_so(packed: str, capfd: pytest.CaptureFixture[str]) -> None:
    """It is for kernels, at its sizes and in its working type."""
    capfd.readouterr()
    assert "is packed for kernels; choose `pallas` as the backend" in said(capfd, packed)
    for other in (["--size", "layers=2"], QWEN3, ["--dtype", "bf16"], ["--schedule", "one"]):
        assert "is packed: its checkpoint, sizes" in said(capfd, packed, "--backend", "pallas", *other)


def test_a_packed_model_is_what_its_definition_says(
    packed: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A MODEL next to it must be the definition that was packed, and no other folder; it is not for the reference."""
    other = tmp_path / "qwen3.mks"
    other.write_text(MODEL.read_text("utf-8").replace("target v5e 1x1", "target v6e 1x1"))
    err = said(capfd, str(other), "--packed", packed)
    assert "E436" in err
    assert "there: `target v5e 1x1`" in err
    assert "here: `target v6e 1x1`" in err
    assert "E400" in said(capfd, "qwen33", "--packed", packed)
    shutil.copytree(packed, tmp_path / "copy")
    assert "name one of them" in said(capfd, packed, "--packed", str(tmp_path / "copy"))
    assert "E430" in said(capfd, "--packed", str(tmp_path))
    assert "is packed: its checkpoint, sizes" in said(capfd, "--packed", packed, "--dtype", "bf16")
    assert open_model(str(MODEL), packed=Path(packed), backend="pallas").name == "qwen3"
    capfd.readouterr()
    assert main(["run", "--packed", packed, "--backend", "reference", "--ids", "1"]) == 2
    assert "--packed is for kernels" in capfd.readouterr().err


@pytest.mark.thorough
@pytest.mark.parametrize("by_flag", [True, False])
def test_a_packed_model_runs(packed: str, by_flag: bool) -> None:
    """It gives the oracle's greedy ids, named by a flag alone or as a model."""
    with np.load(DATA / "qwen3_tiny" / "oracle.npz") as oracle:
        right = oracle["gen"].reshape(-1).tolist()
    named = ["--packed", packed] if by_flag else [packed, "--backend", "pallas"]
    asked = ["--ids", ",".join(map(str, right[:16])), "--max-tokens", "3", "--json"]
    done = children.run(
        [sys.executable, "-c", SOURCE, "run", *named, *asked], capture_output=True, text=True, seconds=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "interpreted" in done.stderr
    assert json.loads(done.stdout)["output_ids"] == right[16:19]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("folder", "lines", "cores"),
    [pytest.param("kimi_k3_tiny", ONE, 1, id="plain"), pytest.param("kimi_k3_mxfp4_tp8", kimi(2, 1), 2, id="mxfp4")],
)
def test_routed_experts(folder: str, lines: str, cores: int, tmp_path: Path) -> None:
    """Prompts are read with the experts that kernels fetch, and latent attention's matrix that they have in two."""
    path = tmp_path / "kimi_k3.mks"
    model, _, _ = text("kimi_k3").partition("\nschedule ")
    path.write_text(f"{model}\nschedule small for kimi_k3 {{\n{lines}}}\n")
    asked = ["--checkpoint", str(DATA / folder), "--sizes", "config", "--ids", "1,2,3", "--max-tokens", "2", "--json"]
    # Most of the time XLA compiles: it need not try hard.
    quick = f"--xla_force_host_platform_device_count={cores} --xla_backend_optimization_level=0"
    found = []
    for backend in ("reference", "pallas"):
        done = children.run(
            [sys.executable, "-c", SOURCE, "run", str(path), *asked, "--backend", backend],
            env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": quick},
            capture_output=True,
            text=True,
            seconds=150,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found.append(json.loads(done.stdout)["output_ids"])
    assert found[0] == found[1]


@pytest.mark.slow
def test_a_server() -> None:
    """Two answers at a time by kernels are those of the reference; what the first left is built upon."""
    served = ["qwen3", "--checkpoint", str(CHAT_TINY), "--sizes", "config"]
    prompt = "Say some emoji to the people of the world, and then say it once more to all."
    options = [*served, "--backend", "pallas", "--max-rows", "2", "--context", "512", "--port", "0", "--access-log"]
    command = [sys.executable, "-c", SOURCE, "serve", *options, os.devnull]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            url = next(line.split()[-1] for line in lines if line.startswith("serving "))
            body = {"model": "qwen3", "prompt": prompt, "max_tokens": 6, "temperature": 0, "n": 2}
            answers = [httpx.post(f"{url}/completions", json=body, timeout=60).json() for _ in range(2)]
        finally:
            process.terminate()
            process.wait(30)
    done = children.run(
        [sys.executable, "-c", SOURCE, "run", *served, "--raw", "--prompt", prompt, "--max-tokens", "6", "--json"],
        capture_output=True,
        text=True,
        seconds=60,
        check=True,
    )
    right = json.loads(done.stdout)["text"]
    assert [choice["text"] for answer in answers for choice in answer["choices"]] == [right] * 4
