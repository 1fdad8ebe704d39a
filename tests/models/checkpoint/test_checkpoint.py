"""Folders of weights: which files count, and what is said of broken ones."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mks.models.checkpoint.folder import open_checkpoint

INDEX = "model.safetensors.index.json"
type Save = Callable[[Path, Mapping[str, np.ndarray]], None]


def ones(*names: str) -> dict[str, np.ndarray]:
    """Small tensors by name."""
    return {name: np.full((2,), i, np.float32) for i, name in enumerate(names)}


def codes(path: Path | str) -> list[str]:
    """The codes of a checkpoint's errors; where there are any, nothing may be loaded."""
    checkpoint, found = open_checkpoint(path)
    errors = [d.code for d in found if d.severity == "error"]
    assert (checkpoint is None) == bool(errors)
    return errors


def said(path: Path) -> str:
    """All that is said of a checkpoint."""
    return "\n".join(line for d in open_checkpoint(path)[1] for line in (d.message, *d.notes, *d.helps))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder with a config."""
    made = tmp_path / "model"
    made.mkdir()
    (made / "config.json").write_text('{"a": {"b": 1}}')
    return made


@pytest.fixture
def indexed(folder: Path, save_file: Save) -> Path:
    """Two shards and their index."""
    save_file(folder / "model-00001-of-00002.safetensors", ones("a", "b"))
    save_file(folder / "model-00002-of-00002.safetensors", ones("c"))
    places = {"a": 1, "b": 1, "c": 2}
    write_index(folder, {name: f"model-{n:05d}-of-00002.safetensors" for name, n in places.items()})
    return folder


def write_index(folder: Path, places: Any) -> None:
    """An index with this weight map."""
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 24}, "weight_map": places}))


def test_reads_one_file_and_its_config(folder: Path, save_file: Save) -> None:
    """A folder with `model.safetensors` gives its tensors and the nested config."""
    save_file(folder / "model.safetensors", ones("a", "b"))

    checkpoint, found = open_checkpoint(folder)

    assert not found
    assert checkpoint is not None
    assert checkpoint.config == {"a": {"b": 1}}
    assert sorted(checkpoint.tensors) == ["a", "b"]
    assert checkpoint.tensors["b"].array().tolist() == [1.0, 1.0]


def test_arrays_are_views_that_survive_the_checkpoint(folder: Path, save_file: Save) -> None:
    """An array stays valid when everything else is gone, and cannot be written to."""
    save_file(folder / "model.safetensors", ones("a", "b"))
    checkpoint, _ = open_checkpoint(folder)
    assert checkpoint is not None

    array = checkpoint.tensors["b"].array()
    checkpoint.tensors["b"].release()
    del checkpoint

    assert array.tolist() == [1.0, 1.0]
    assert not array.flags.writeable
    assert not array.flags.owndata


def test_any_single_file_counts_and_can_be_named_itself(folder: Path, save_file: Save) -> None:
    """The only safetensors file of a folder is read, whatever its name; so is a file given as the checkpoint."""
    save_file(folder / "weights.safetensors", ones("a"))

    for path in (folder, folder / "weights.safetensors"):
        checkpoint, found = open_checkpoint(path)
        assert not found
        assert checkpoint is not None
        assert list(checkpoint.tensors) == ["a"]
        assert checkpoint.config == {"a": {"b": 1}}


def test_reads_shards_with_an_index(indexed: Path) -> None:
    """All shards that the index names are merged."""
    checkpoint, found = open_checkpoint(indexed)

    assert not found
    assert checkpoint is not None
    assert sorted(checkpoint.tensors) == ["a", "b", "c"]


def test_reads_shards_without_an_index(indexed: Path) -> None:
    """A full set of shards needs no index."""
    (indexed / INDEX).unlink()

    checkpoint, found = open_checkpoint(indexed)

    assert not found
    assert checkpoint is not None
    assert sorted(checkpoint.tensors) == ["a", "b", "c"]


@pytest.mark.parametrize("keep_index", [True, False])
def test_a_stray_file_is_not_merged(indexed: Path, save_file: Save, keep_index: bool) -> None:
    """A file beside the shards changes nothing, even if it holds the same names or is broken."""
    save_file(indexed / "extra.safetensors", ones("a", "z"))
    (indexed / "broken.safetensors").write_bytes(b"junk")
    if not keep_index:
        (indexed / INDEX).unlink()

    checkpoint, found = open_checkpoint(indexed)

    assert not found
    assert checkpoint is not None
    assert sorted(checkpoint.tensors) == ["a", "b", "c"]
    assert checkpoint.tensors["a"].array().tolist() == [0.0, 0.0]


def test_a_stray_file_beside_the_main_one_is_not_merged(folder: Path, save_file: Save) -> None:
    """`model.safetensors` is read alone."""
    save_file(folder / "model.safetensors", ones("a"))
    save_file(folder / "adapter.safetensors", ones("z"))

    checkpoint, found = open_checkpoint(folder)

    assert not found
    assert checkpoint is not None
    assert list(checkpoint.tensors) == ["a"]


def test_missing_shard_that_the_index_names(indexed: Path) -> None:
    """An absent file is named with what it should hold."""
    (indexed / "model-00002-of-00002.safetensors").unlink()

    assert codes(indexed) == ["E407"]
    assert "`model-00002-of-00002.safetensors`, which is absent" in said(indexed)
    assert "it should hold `c`" in said(indexed)


def test_missing_shard_without_an_index(indexed: Path) -> None:
    """The gap in a numbered set is named."""
    (indexed / INDEX).unlink()
    (indexed / "model-00001-of-00002.safetensors").unlink()

    assert codes(indexed) == ["E407"]
    assert "lacks 1 of 2 shards: `model-00001-of-00002.safetensors`" in said(indexed)


def test_tensor_that_is_not_where_the_index_puts_it(indexed: Path) -> None:
    """The error names the file that should hold the tensor and the one that does."""
    write_index(indexed, {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"})

    assert codes(indexed) == ["E409"]
    assert "puts tensors in `model-00002-of-00002.safetensors` that it does not hold: `b`" in said(indexed)
    assert "`model-00001-of-00002.safetensors` holds some of them" in said(indexed)


@pytest.mark.parametrize(
    "file", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "a\\b.safetensors", "c:x", "..", "", 3, None]
)
def test_index_may_only_name_files_of_its_folder(indexed: Path, file: Any) -> None:
    """Paths out of the folder and things that are no names are refused before any file is opened."""
    write_index(indexed, {"a": file})

    assert codes(indexed) == ["E408"]


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b"{}", b'{"weight_map": []}', b'{"weight_map": {}}', b"\xff", b"[" * 99_999]
)
def test_broken_index(indexed: Path, content: bytes) -> None:
    """An index that is not JSON, or holds no map, is one error."""
    (indexed / INDEX).write_bytes(content)

    assert codes(indexed) == ["E408"]


def test_same_tensor_in_two_shards(indexed: Path, save_file: Save) -> None:
    """Without an index that decides, a name in two files is an error that names both."""
    (indexed / INDEX).unlink()
    save_file(indexed / "model-00002-of-00002.safetensors", ones("b", "c"))

    assert codes(indexed) == ["E405"]
    assert "`b`" in said(indexed)


@pytest.mark.parametrize("content", [b"{", b"[]", b"3", b"\xff\xff", b'{"a": ' + b"[" * 99_999])
def test_broken_config(folder: Path, save_file: Save, content: bytes) -> None:
    """A config that is not a JSON object is an error of its own."""
    save_file(folder / "model.safetensors", ones("a"))
    (folder / "config.json").write_bytes(content)

    assert codes(folder) == ["E414"]


def test_absent_config_is_a_warning(folder: Path, save_file: Save) -> None:
    """Without a config there is nothing to compare sizes with, which is said."""
    save_file(folder / "model.safetensors", ones("a"))
    (folder / "config.json").unlink()

    checkpoint, found = open_checkpoint(folder)

    assert checkpoint is not None
    assert checkpoint.config is None
    assert [d.code for d in found] == ["W414"]


def test_all_problems_are_listed(indexed: Path) -> None:
    """A broken config, a truncated shard, a pointer and an absent shard are four errors in one go."""
    shards = [f"model-{n:05d}-of-00003.safetensors" for n in (1, 2, 3)]
    (indexed / shards[0]).write_bytes((indexed / "model-00001-of-00002.safetensors").read_bytes()[:-3])
    (indexed / shards[1]).write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    (indexed / "config.json").write_text("{")
    write_index(indexed, dict(zip("abc", shards, strict=True)))

    assert sorted(codes(indexed)) == ["E402", "E403", "E407", "E414"]


def test_lfs_pointer(folder: Path) -> None:
    """A pointer instead of weights says how to get them."""
    (folder / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")

    assert codes(folder) == ["E402"]
    assert "git lfs pull" in said(folder)


def test_empty_file(folder: Path) -> None:
    """An empty file is called that."""
    (folder / "model.safetensors").touch()

    assert codes(folder) == ["E403"]
    assert "is empty" in said(folder)


def test_no_such_folder(folder: Path) -> None:
    """A wrong path suggests the near one."""
    assert codes(folder.parent / "modle") == ["E401"]
    assert "did you mean `model`?" in said(folder.parent / "modle")
    assert codes("\0") == ["E401"]


def test_folder_without_weights(folder: Path) -> None:
    """A folder that holds no weight file, or nothing, is refused."""
    assert codes(folder) == ["E401"]
    assert "holds no .safetensors and no .gguf file" in said(folder)

    (folder / "config.json").unlink()
    assert "is empty" in said(folder)


def test_several_files_without_an_index(folder: Path, save_file: Save) -> None:
    """Which of several files is meant is not guessed."""
    save_file(folder / "one.safetensors", ones("a"))
    save_file(folder / "two.safetensors", ones("a"))

    assert codes(folder) == ["E401"]
    assert "`one.safetensors`, `two.safetensors`" in said(folder)


def test_a_file_of_another_kind(folder: Path) -> None:
    """A pickle is not read, and said to be neither kind."""
    (folder / "pytorch_model.bin").write_bytes(b"PK")

    assert codes(folder / "pytorch_model.bin") == ["E401"]


def test_weights_that_are_a_directory(folder: Path) -> None:
    """A directory with a weight file's name is an error, not a traceback."""
    (folder / "model.safetensors").mkdir()

    assert codes(folder) == ["E401"]


def test_symbolic_links_are_followed(folder: Path, save_file: Save, tmp_path: Path) -> None:
    """The hub's cache keeps files behind links; a dangling one is an absent file."""
    save_file(tmp_path / "blob", ones("a"))
    (folder / "model.safetensors").symlink_to(tmp_path / "blob")
    assert codes(folder) == []

    shutil.move(tmp_path / "blob", tmp_path / "gone")
    assert codes(folder) == ["E401"]


def test_a_config_that_is_no_file(folder: Path, save_file: Save) -> None:
    """A folder or a pipe in its place is said, not waited for."""
    save_file(folder / "model.safetensors", ones("a"))
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    assert codes(folder) == ["E414"]
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    assert codes(folder) == ["E414"]


def test_weights_that_are_no_file(folder: Path) -> None:
    """A pipe in the place of weights is said, not waited for."""
    os.mkfifo(folder / "model.safetensors")
    assert codes(folder) == ["E401"]
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.gguf")
    assert codes(folder / "model.gguf") == ["E401"]
