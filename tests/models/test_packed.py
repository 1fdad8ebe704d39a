"""Whatever a packed folder holds, opening it gives a model or diagnostics."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from helpers.definitions import FOLDER
from helpers.oracles import DATA
from helpers.packs import pack, prepared
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mks.dsl.diagnostics import MksError
from mks.dsl.source import Source
from mks.models.packed import is_packed, open_packed, verify
from mks.models.packed_layout import core_file


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed model of eight cores."""
    folder = tmp_path_factory.mktemp("packed") / "sound"
    path = FOLDER / "qwen38.mks"
    pack(prepared(Source(str(path), path.read_text("utf-8")), DATA / "qwen38_tp8"), folder)
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    """One of its own for a test to harm."""
    return Path(shutil.copytree(sound, tmp_path / "packed"))


def codes(folder: Path) -> list[str]:
    """What opening it says."""
    with pytest.raises(MksError) as caught:
        open_packed(folder)
    return [d.code for d in caught.value.diagnostics]


def change(folder: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Edit the manifest."""
    said = json.loads((folder / "manifest.json").read_text())
    edit(said)
    (folder / "manifest.json").write_text(json.dumps(said))


def test_a_folder_that_was_moved_opens(folder: Path) -> None:
    """Nothing in it names a place."""
    packed = open_packed(folder)

    assert is_packed(folder)
    assert not is_packed(DATA / "qwen38_tp8")
    assert verify(packed) == []
    assert not packed.arrays(7)["tape dense"].flags.writeable
    assert str(DATA) not in (folder / "manifest.json").read_text()


def test_no_packed_model(tmp_path: Path, folder: Path) -> None:
    """A checkpoint, nothing at all, and a folder without its manifest."""
    assert codes(tmp_path / "nothing") == ["E430"]
    assert codes(DATA / "qwen38_tp8") == ["E430"]
    (folder / "manifest.json").unlink()
    assert codes(folder) == ["E430"]


def test_files_that_are_not_whole(folder: Path) -> None:
    """One is cut short, one is gone, one is empty, one has other arrays: each is told."""
    os.truncate(folder / core_file(1), 9000)
    (folder / core_file(2)).unlink()
    (folder / core_file(3)).write_bytes(b"")
    os.truncate(folder / core_file(4), (folder / core_file(4)).stat().st_size - 1)
    raw = (folder / core_file(5)).read_bytes()
    (folder / core_file(5)).write_bytes(raw.replace(b'"tape dense"', b'"tape thick"'))

    assert sorted(codes(folder)) == ["E401", "E403", "E403", "E403", "E432"]


@pytest.mark.parametrize("at", [0.3, 0.6, 0.999])
def test_a_flipped_bit_has_another_checksum(folder: Path, at: float) -> None:
    """Only `verify` sees it, and names the file and the array."""
    path = folder / core_file(6)
    data = bytearray(path.read_bytes())
    data[int(at * len(data))] ^= 8
    path.write_bytes(data)
    (found,) = verify(open_packed(folder))

    assert found.code == "E432"
    assert core_file(6) in found.message


def test_files_of_two_cores_that_changed_places(folder: Path) -> None:
    """They have the same arrays, so the checksums tell."""
    (folder / core_file(0)).rename(folder / "aside")
    (folder / core_file(1)).rename(folder / core_file(0))
    (folder / "aside").rename(folder / core_file(1))

    assert {d.code for d in verify(open_packed(folder))} == {"E432"}


@pytest.mark.parametrize(
    ("edit", "code"),
    [
        (lambda m: m.update(format=2), "E431"),
        (lambda m: m.pop("format"), "E431"),
        (lambda m: m.update(layout="0"), "E431"),
        (lambda m: m.update(dtype="f64"), "E432"),
        (lambda m: m.update(cores=9, files=m["files"][:7]), "E432"),
        (lambda m: m["arrays"].pop("tape dense"), "E432"),
        (lambda m: m["arrays"]["tape dense"].update(shape=[1, 512]), "E432"),
        (lambda m: m["files"][2]["crc32"].pop("tape dense"), "E432"),
        (lambda m: m["files"][2].update(name="../core-002.safetensors"), "E432"),
        (lambda m: m.pop("definition"), "E432"),
        (lambda m: m.update(model="other"), "E432"),
        (lambda m: m.update(schedule="other"), "E435"),
        (lambda m: m.update(sizes=3), "E432"),
        (lambda m: m["sizes"].update(d="x"), "E432"),
        (lambda m: m.pop("plain"), "E432"),
        (lambda m: m.update(plain="embed"), "E432"),
        (lambda m: m.update(plain=["nothing"]), "E432"),
        (lambda m: m["sizes"].update(full=4), "E432"),
        (lambda m: m["sizes"].update(d="1e999999999"), "E432"),  # `Fraction` would compute it
        (lambda m: m.update(format=True), "E431"),
        (lambda m: m.update(schedule=None), "E432"),
        (lambda m: m.update(texts=[1]), "E432"),
        (lambda m: m.update(cores=[[]]), "E432"),
        (lambda m: m.update(topology=[8, 8, 8]), "E432"),
        (lambda m: m["files"][0]["crc32"].update(dict.fromkeys(m["files"][0]["crc32"], "x")), "E432"),
        (lambda m: m["sizes"].update(layers=10**10), "E124"),
        (lambda m: m["sizes"].update(layers=4), "E431"),
        (lambda m: m["sizes"].update(nothing=1), "E114"),
    ],
)
def test_a_manifest_that_says_other_things(folder: Path, edit: Callable[[dict[str, Any]], Any], code: str) -> None:
    """Another version's is told apart from a damaged one."""
    change(folder, edit)

    assert codes(folder) == [code]


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\ufeff{}", "[" * 100_000])
def test_a_manifest_that_is_none(folder: Path, text: str) -> None:
    """JSON of another kind, or none."""
    (folder / "manifest.json").write_text(text)

    assert codes(folder) == ["E432"]


values = (
    st.none() | st.booleans() | st.integers(-3, 1 << 70) | st.floats() | st.text(max_size=4) | st.just([]) | st.just({})
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_manifests_of_any_kind_never_raise(sound: Path, data: st.DataObject) -> None:
    """One value replaced by anything, at the top or inside, is a model or diagnostics."""
    path = sound / "manifest.json"
    text = path.read_text()
    said = json.loads(text)
    inside = data.draw(
        st.sampled_from([said, said["sizes"], said["arrays"], said["files"][3], said["files"][0]["crc32"]])
    )
    inside[data.draw(st.sampled_from(sorted(inside)))] = data.draw(values)
    path.write_text(json.dumps(said))
    try:
        with suppress(MksError):
            verify(open_packed(sound))
    finally:
        path.write_text(text)


def test_a_size_over_zero(sound: Path) -> None:
    """A fraction that is none is said like any other damage."""
    path = sound / "manifest.json"
    text = path.read_text()
    said = json.loads(text)
    path.write_text(json.dumps(said | {"sizes": said["sizes"] | {"d": "0/0"}}))
    try:
        with pytest.raises(MksError) as refused:
            open_packed(sound)
    finally:
        path.write_text(text)
    assert [d.code for d in refused.value.diagnostics] == ["E432"]


def test_a_manifest_that_is_a_pipe(folder: Path) -> None:
    """It is not waited for."""
    (folder / "manifest.json").unlink()
    os.mkfifo(folder / "manifest.json")
    assert codes(folder) == ["E430"]
