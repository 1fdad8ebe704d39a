"""Whatever a packed folder holds, opening it gives a model or diagnostics."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.definitions import FOLDER
from helpers.oracles import DATA
from helpers.packs import TEXT, pack, prepared
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from mks.dsl.diagnostics import MksError
from mks.dsl.source import Source
from mks.models.packing import checksums
from mks.models.packing.checksums import sealed
from mks.models.packing.layout import core_file
from mks.models.packing.packed import is_packed, open_packed, verify


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
    seal(folder, said)


def seal(folder: Path, said: dict[str, Any]) -> None:
    """Write a manifest as `mks pack` would."""
    (folder / "manifest.json").write_bytes(sealed({name: value for name, value in said.items() if name != "seal"}))


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


def damaged(folder: Path) -> list[str]:
    """What opening it and reading all of it says: codes and messages."""
    try:
        found = verify(open_packed(folder))
    except MksError as refused:
        found = list(refused.diagnostics)
    return [f"{d.code} {d.message}" for d in found]


def spans(path: Path) -> dict[str, tuple[int, int]]:
    """Where in a safetensors file its arrays and its header are, read without the code under test."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    entries = json.loads(data[8:start])
    del entries["__metadata__"]
    ends = {name: tuple(start + at for at in entry["data_offsets"]) for name, entry in entries.items()}
    return {"header": (0, start), **ends}


def flip(path: Path, bit: int) -> None:
    """Turn one bit of a file; the same again turns it back."""
    with path.open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def told(folder: Path, path: Path, bit: int) -> None:
    """A flipped bit is refused, by the name of the file, and of the array where there is one; then it is mended."""
    flip(path, bit)
    try:
        (said,) = damaged(folder)
    finally:
        flip(path, bit)
    assert said.startswith("E432 "), said
    if path.name == "manifest.json":
        assert "manifest" in said
        return
    assert f"{path.name}`" in said
    if path.suffix == ".safetensors":
        names = spans(path).items()
        (name,) = (name for name, (start, end) in names if start <= bit // 8 < end)
        assert "its header" in said if name == "header" else f"`{name}`" in said


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed model of two cores with text files, whose arrays have several checksums each."""
    place = tmp_path_factory.mktemp("small")
    (place / "checkpoint").mkdir()
    shapes = {"embed": (200, 64)}
    for i in range(3):
        shapes |= {f"l.{i}.norm": (64,), f"l.{i}.gate": (96, 64), f"l.{i}.up": (96, 64), f"l.{i}.down": (64, 96)}
    rng = np.random.default_rng(3)
    arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(arrays, place / "checkpoint" / "model.safetensors")
    (place / "checkpoint" / "config.json").write_text('{"d": 64, "ffn": 96, "layers": 3, "vocab": 200}')
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (place / "checkpoint" / name).write_text(f'{{"of": "{name}"}}')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksums, "PIECE", 20_000)
        pack(prepared(Source("toy.mks", TEXT), place / "checkpoint", "two", working="f32"), place / "packed")
    return place / "packed"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of the small model's length."""
    monkeypatch.setattr(checksums, "PIECE", 20_000)


def test_a_whole_folder_is_taken(small: Path, short: None) -> None:
    """Also where an array has several pieces, the last of them short."""
    assert damaged(small) == []
    (sums,) = {len(file["arrays"]["tape dense"]) for file in json.loads((small / "manifest.json").read_text())["files"]}
    assert sums > 2


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_flipped_bit_is_told(small: Path, short: None, data: st.DataObject) -> None:
    """Wherever it is: in the manifest and the definition in it, a tokenizer, a header, an array."""
    path = data.draw(st.sampled_from(sorted(small.iterdir())))
    told(small, path, data.draw(st.integers(0, 8 * path.stat().st_size - 1)))


def test_each_file_and_each_array(small: Path, short: None) -> None:
    """The first and the last bit of every one of them."""
    for path in sorted(small.iterdir()):
        places = spans(path) if path.suffix == ".safetensors" else {"": (0, path.stat().st_size)}
        for start, end in places.values():
            told(small, path, 8 * start)
            told(small, path, 8 * end - 1)


def test_each_kind_of_array(tmp_path: Path) -> None:
    """Tapes, experts, tables and vectors."""
    text = (FOLDER / "kimi_k3.mks").read_text("utf-8")
    one = "schedule one for kimi_k3 {\n  target v5e 1x1\n  rows 1\n  context 256\n}\n"
    source = Source("kimi.mks", text[: text.index("schedule ironwood16")] + one)
    pack(prepared(source, DATA / "kimi_k3_mxfp4_tiny", "one"), tmp_path / "packed")
    path = tmp_path / "packed" / core_file(0)
    kinds = {name.split()[0]: (start, end) for name, (start, end) in spans(path).items() if start < end}

    assert kinds.keys() == {"header", "tape", "bank", "table", "vectors"}
    for start, end in kinds.values():
        told(tmp_path / "packed", path, 4 * (start + end))


def test_what_is_loaded_is_checked(small: Path, short: None) -> None:
    """An operand that is damaged is not handed out, and the others are."""
    path = small / core_file(1)
    start, _ = spans(path)["tape dense"]
    flip(path, 8 * start + 3)
    try:
        packed = open_packed(small)
        assert packed.operand("tape dense", 0).any()
        with pytest.raises(MksError, match="E432") as refused:
            packed.operand("tape dense", 1)
    finally:
        flip(path, 8 * start + 3)
    assert "its bytes 0 .. 20000" in refused.value.diagnostics[0].notes[0]


def test_text_files_that_are_not_those_that_were_packed(small: Path, short: None, tmp_path: Path) -> None:
    """Swapped, absent, added and cut ones are told by name."""

    def harmed(harm: Callable[[Path], Any]) -> list[str]:
        folder = Path(shutil.copytree(small, tmp_path / "harmed"))
        harm(folder)
        said = damaged(folder)
        shutil.rmtree(folder)
        return said

    def swap(folder: Path) -> None:
        (folder / "tokenizer.json").rename(folder / "aside")
        (folder / "config.json").rename(folder / "tokenizer.json")
        (folder / "aside").rename(folder / "config.json")

    assert ["config.json" in said or "tokenizer.json" in said for said in harmed(swap)] == [True, True]
    (absent,) = harmed(lambda folder: (folder / "tokenizer_config.json").unlink())
    assert absent.endswith("/tokenizer_config.json` is absent, and was packed")
    (added,) = harmed(lambda folder: (folder / "tokenizer.model").write_text("other"))
    assert added.endswith("/tokenizer.model` was not packed")
    (cut,) = harmed(lambda folder: os.truncate(folder / "chat_template.jinja", 3))
    assert "/chat_template.jinja` is damaged" in cut


def test_a_folder_of_the_first_format(folder: Path) -> None:
    """It has no checksums of pieces; what packs it again is said."""
    said = json.loads((folder / "manifest.json").read_text())
    del said["seal"]
    (folder / "manifest.json").write_text(json.dumps(said | {"format": 1}))
    with pytest.raises(MksError) as refused:
        open_packed(folder)
    (found,) = refused.value.diagnostics

    assert found.code == "E431"
    assert found.helps == (
        "`mks pack qwen38.mks --checkpoint DIR --sizes config --schedule ironwood4 --dtype bf16 -o NEW` packs it again",
    )


def test_files_of_two_cores_that_changed_places(folder: Path) -> None:
    """They have the same arrays, so the checksums tell."""
    (folder / core_file(0)).rename(folder / "aside")
    (folder / core_file(1)).rename(folder / core_file(0))
    (folder / "aside").rename(folder / core_file(1))

    assert {d.code for d in verify(open_packed(folder))} == {"E432"}


@pytest.mark.parametrize(
    ("edit", "code"),
    [
        (lambda m: m.update(format=3), "E431"),
        (lambda m: m.pop("format"), "E431"),
        (lambda m: m.update(layout="0"), "E431"),
        (lambda m: m.update(dtype="f64"), "E432"),
        (lambda m: m.update(cores=9, files=m["files"][:7]), "E432"),
        (lambda m: m["arrays"].pop("tape dense"), "E432"),
        (lambda m: m["arrays"]["tape dense"].update(shape=[1, 512]), "E432"),
        (lambda m: m["files"][2]["arrays"].pop("tape dense"), "E432"),
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
        (lambda m: m["texts"].update({"../config.json": "0"}), "E432"),
        (lambda m: m["checksums"].update(kind="crc32"), "E432"),
        (lambda m: m["files"][1]["arrays"]["tape dense"].append("0"), "E432"),
        (lambda m: m.update(cores=[[]]), "E432"),
        (lambda m: m.update(topology=[8, 8, 8]), "E432"),
        (lambda m: m["files"][0]["arrays"].update(dict.fromkeys(m["files"][0]["arrays"], 3)), "E432"),
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
        st.sampled_from([said, said["sizes"], said["arrays"], said["files"][3], said["files"][0]["arrays"]])
    )
    inside[data.draw(st.sampled_from(sorted(inside)))] = data.draw(values)
    seal(sound, said)
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
    seal(sound, said | {"sizes": said["sizes"] | {"d": "0/0"}})
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
