"""Headers of safetensors files: what is accepted, and what each fault is called."""

import json
from typing import Any

import pytest
import safetensors
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mks.dsl.diagnostics import Sink
from mks.models.checkpoint.safetensors_header import read_header

F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def build(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A file's bytes."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + data


def codes(data: bytes) -> list[str]:
    """The codes that a file's bytes get."""
    sink = Sink()
    found = read_header("w.safetensors", data, len(data), sink)
    assert (found is None) == sink.failed
    return [d.code for d in sink.diagnostics]


def text(data: bytes) -> str:
    """All that is said of a file's bytes."""
    sink = Sink()
    read_header("w.safetensors", data, len(data), sink)
    return "\n".join(line for d in sink.diagnostics for line in (d.message, *d.notes, *d.helps))


def test_accepts_a_sound_file() -> None:
    """A sound header gives each tensor's format, shape and bytes, and where the bytes begin."""
    header = {"__metadata__": {"format": "pt"}, "b": F32, "a": {"dtype": "BF16", "shape": [], "data_offsets": [8, 10]}}
    data, sink = build(header, b"\0" * 10), Sink()

    found = read_header("w", data, len(data), sink)

    assert found is not None
    entries, start = found
    assert (entries["b"].kind, entries["b"].shape, entries["b"].begin, entries["b"].end) == ("f32", (2,), 0, 8)
    assert (entries["a"].kind, entries["a"].shape) == ("bf16", ())
    assert start == len(data) - 10
    assert not sink.diagnostics


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "E403"),
        (b"\x01\x02", "E403"),
        (build({"x": F32}, b"\0" * 8)[:20], "E403"),
        (build({"x": F32}, b"\0" * 7), "E403"),
        (build(b"", length=0), "E404"),
        (build({"x": F32}, b"\0" * 8, length=1 << 63), "E404"),
        (build({"x": F32}, b"\0" * 8, length=(1 << 64) - 1), "E404"),
        (build({"x": F32}, b"\0" * 8, length=90_000_000), "E403"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "E402"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "E404"),
        (build(b"{not json"), "E404"),
        (build(b"\xff\xfe{}"), "E404"),
        (build(b"[" * 100_000), "E404"),
        (build(b'{"x":{"dtype":"F32","shape":[' + b"1" * 5000 + b'],"data_offsets":[0,8]}}'), "E404"),
        (build([1, 2]), "E404"),
        (build({"x": 3}), "E404"),
        (build({"x": {"dtype": "F32", "shape": [2]}}), "E404"),
        (build({"x": F32 | {"dtype": "F33"}}, b"\0" * 8), "E404"),
        (build({"x": F32 | {"dtype": "f32"}}, b"\0" * 8), "E404"),
        (build({"x": F32 | {"shape": [-2]}}, b"\0" * 8), "E404"),
        (build({"x": F32 | {"shape": [True, 2]}}, b"\0" * 8), "E404"),
        (build({"x": F32 | {"shape": [2.0]}}, b"\0" * 8), "E404"),
        (build({"x": F32 | {"data_offsets": [0]}}, b"\0" * 8), "E404"),
        (build({"x": F32 | {"data_offsets": [8, 0]}}, b"\0" * 8), "E404"),
        (build({"x": F32 | {"data_offsets": [0, 1 << 70]}}, b"\0" * 8), "E404"),
        (build(b'{"x":%s,"x":%s}' % ((json.dumps(F32).encode(),) * 2), b"\0" * 8), "E405"),
        (build({"x": F32 | {"shape": [3]}}, b"\0" * 8), "E406"),
        (build({"x": F32, "y": F32 | {"data_offsets": [4, 12]}}, b"\0" * 12), "E406"),
        (build({"x": F32, "y": F32}, b"\0" * 8), "E406"),
        (build({"x": F32, "y": F32 | {"data_offsets": [12, 20]}}, b"\0" * 20), "E406"),
        (build({"x": F32 | {"data_offsets": [4, 12]}}, b"\0" * 12), "E406"),
        (build({"x": F32}, b"\0" * 9), "E406"),
    ],
)
def test_tells_each_fault_apart(data: bytes, code: str) -> None:
    """Every way to break a file has its own code, and one cause gives one error."""
    assert codes(data) == [code]


def test_names_both_parties_of_an_overlap() -> None:
    """An overlap names both tensors and the offsets."""
    said = text(build({"x": F32, "y": F32 | {"data_offsets": [4, 12]}}, b"\0" * 12))

    assert "`y` at 4 .. 12 overlaps `x`, which ends at 8" in said


def test_lists_all_malformed_tensors_up_to_a_readable_number() -> None:
    """Twelve bad tensors are five lines and a count."""
    said = text(build({f"t{i}": F32 | {"shape": [3 + i]} for i in range(12)}, b"\0" * 8))

    assert "`t0`: f32[3] takes 12 bytes, not 8" in said
    assert "… and 7 more" in said


def test_says_how_much_of_a_truncated_file_is_there() -> None:
    """A truncated file's error gives both sizes and the tensors that are cut."""
    header = {"x": F32, "y": F32 | {"data_offsets": [8, 16]}}

    said = text(build(header, b"\0" * 10))

    assert "its tensors take 16 bytes and 10 are there" in said
    assert "incomplete: `y`" in said


def library_accepts(data: bytes) -> bool:
    """Whether the safetensors package reads these bytes."""
    try:
        safetensors.deserialize(data)
    except Exception:
        return False
    return True


numbers = st.integers(-2, 40) | st.just(1 << 63) | st.booleans() | st.floats(allow_nan=True)
entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "U8", "F4", "F8_E8M0", "X", 3]),
        "shape": st.lists(numbers, max_size=3) | st.just("2"),
        "data_offsets": st.lists(numbers, min_size=1, max_size=3),
    }
)
sound = st.lists(st.tuples(st.sampled_from(["F32", "BF16", "U8"]), st.lists(st.integers(0, 3), max_size=3)), max_size=5)


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=200)
    | st.dictionaries(st.text(max_size=4), entries, max_size=4).map(lambda header: build(header, b"\0" * 24))
)
@example(build({}, b""))
@example(build(b"{}   ", b""))
def test_never_raises_and_accepts_only_what_the_package_accepts(data: bytes) -> None:
    """Arbitrary bytes and headers give diagnostics, never a traceback; what passes here passes in the package."""
    if not codes(data):
        assert library_accepts(data)


@settings(max_examples=200, deadline=None)
@given(sound, st.integers(0, 400), st.binary(min_size=1, max_size=3))
def test_mutations_of_sound_files(tensors: list[tuple[str, list[int]]], at: int, patch: bytes) -> None:
    """Sound files pass as they do in the package; overwritten ones never raise, and no fault goes unseen."""
    header, end = {}, 0
    for i, (dtype, shape) in enumerate(tensors):
        size = {"F32": 4, "BF16": 2, "U8": 1}[dtype]
        for n in shape:
            size *= n
        header[f"t{i}"] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    data = build(header, b"\0" * end)
    assert not codes(data)
    assert library_accepts(data)

    broken = data[:at] + patch + data[at + len(patch) :]
    if not codes(broken):
        assert library_accepts(broken)
