"""A safetensors header: eight bytes of length, JSON, and offsets that must tile the rest of the file.

The `safetensors` package refuses most broken headers too, but in one undifferentiated exception that names neither
the tensor nor the numbers, and it accepts duplicate names; here each fault is told apart and all are listed.
"""

from __future__ import annotations

import json
from math import prod
from typing import Any

from attrs import frozen

from ...dsl.diagnostics import Sink
from .tensors import BITS, listed

GIT_LFS = b"version https://git-lfs"
LONGEST = 100_000_000  # the limit that the format's own library sets


@frozen
class Entry:
    """A tensor's place: bytes `begin .. end` after the header."""

    kind: str
    shape: tuple[int, ...]
    begin: int
    end: int


def check_start(path: str, data: Any, size: int, sink: Sink) -> bool:
    """Whether a file's first bytes can be those of any weight file."""
    if size == 0:
        sink.report("E403", f"`{path}` is empty")
        return False
    if data[: len(GIT_LFS)] == GIT_LFS:
        sink.report(
            "E402",
            f"`{path}` is a git-lfs pointer, not the file itself",
            helps=("`git lfs pull` in its repository fetches the file",),
        )
        return False
    return True


def read_header(path: str, data: Any, size: int, sink: Sink) -> tuple[dict[str, Entry], int] | None:
    """The tensors of a file (`data`: its bytes, sliceable) and where their bytes start; faults go to the sink."""
    if not check_start(path, data, size, sink):
        return None
    if size < 8:
        sink.report("E403", f"`{path}` is cut short: {size} bytes, and a header's length alone takes 8")
        return None
    length = int.from_bytes(data[:8], "little")
    if length == 0:
        sink.report("E404", f"`{path}` says that its header has length 0")
        return None
    if length > LONGEST:
        sink.report("E404", f"`{path}` says that its header has {length} bytes; {LONGEST} are the limit")
        return None
    if 8 + length > size:
        sink.report("E403", f"`{path}` is cut short: {size} bytes, and its header alone takes {8 + length}")
        return None
    pairs = _json(path, bytes(data[8 : 8 + length]), sink)
    if pairs is None:
        return None
    entries = _entries(path, pairs, sink)
    if entries is None or not _tiled(path, entries, size - 8 - length, sink):
        return None
    return entries, 8 + length


def _json(path: str, raw: bytes, sink: Sink) -> dict[str, Any] | None:
    repeated: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            seen: set[str] = set()
            repeated.extend(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        return members

    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as e:
        reason = "it nests too deep" if isinstance(e, RecursionError) else str(e)
        sink.report("E404", f"the header of `{path}` is not JSON", notes=(reason,))
        return None
    if not isinstance(header, dict):
        sink.report("E404", f"the header of `{path}` is not a JSON object")
        return None
    if repeated:
        names = listed([f"`{name}`" for name in repeated])
        sink.report("E405", f"the header of `{path}` holds the same name more than once: {names}")
        return None
    return header


def _entries(path: str, header: dict[str, Any], sink: Sink) -> dict[str, Entry] | None:
    entries, malformed, wrong = {}, [], []
    for name, value in header.items():
        if name == "__metadata__":
            continue
        entry = _entry(value)
        if isinstance(entry, str):
            malformed.append(f"`{name}`: {entry}")
            continue
        bits, here = prod(entry.shape) * BITS[entry.kind], entry.end - entry.begin
        if bits != 8 * here:
            wrong.append(f"`{name}`: {entry.kind}{list(entry.shape)} takes {-(-bits // 8)} bytes, not {here}")
        entries[name] = entry
    if malformed:
        sink.report(
            "E404",
            f"the header of `{path}` describes tensors in a way that is not safetensors'",
            notes=_some(malformed),
        )
    if wrong:
        sink.report("E406", f"the header of `{path}` gives tensors another size than their shapes", notes=_some(wrong))
    return None if malformed or wrong else entries


def _entry(value: Any) -> Entry | str:
    if not isinstance(value, dict) or not {"dtype", "shape", "data_offsets"} <= value.keys():
        return "needs dtype, shape and data_offsets"
    kind, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(kind, str) or kind != kind.upper() or kind.lower() not in BITS:
        return f"unknown dtype {kind!r:.40}"
    if not isinstance(shape, list) or not all(_whole(n) for n in shape):
        return "its shape is not a list of whole numbers"
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_whole(n) for n in offsets):
        return "its data_offsets are not two whole numbers"
    if offsets[0] > offsets[1]:
        return f"it ends at {offsets[1]}, before it begins at {offsets[0]}"
    return Entry(kind.lower(), tuple(shape), *offsets)


def _whole(n: Any) -> bool:
    return isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 64


def _tiled(path: str, entries: dict[str, Entry], size: int, sink: Sink) -> bool:
    """Whether the tensors fill the `size` bytes after the header, each byte once."""
    at, before, faults = 0, "the header", []
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin < at:
            faults.append(f"`{name}` at {entry.begin} .. {entry.end} overlaps {before}, which ends at {at}")
        elif entry.begin > at:
            faults.append(f"{entry.begin - at} bytes between {before} and `{name}` belong to no tensor")
        if entry.end >= at:
            at, before = entry.end, f"`{name}`"
    if faults:
        sink.report("E406", f"the tensors of `{path}` do not lie one after the other", notes=_some(faults))
    if at > size:
        cut = [f"`{name}`" for name, entry in entries.items() if entry.end > size]
        sink.report(
            "E403",
            f"`{path}` is cut short: its tensors take {at} bytes and {size} are there",
            notes=(f"incomplete: {listed(cut)}",),
            helps=("download the file again",),
        )
    elif at < size and not faults:
        sink.report("E406", f"`{path}` has {size - at} bytes after its last tensor")
        return False
    return not faults and at <= size


def _some(lines: list[str], limit: int = 5) -> tuple[str, ...]:
    rest = len(lines) - limit
    return (*lines[:limit], *([f"… and {rest} more"] if rest > 0 else []))
