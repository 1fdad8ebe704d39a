"""Compares a packed folder's bytes with the checksums of its manifest; what differs is named by file and array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...dsl.diagnostics import Diagnostic, Sink
from ..checkpoint.safetensors_file import SafeTensor, map_file, open_safetensors
from . import checksums
from . import layout as layout
from .checksums import checksum, pieces
from .layout import MANIFEST, Operand
from .read_manifest import AGAIN
from .text_files import kept_files


def complete(manifest: Mapping[str, Any], arrays: Sequence[Operand], cores: int) -> bool:
    """Whether a manifest has a checksum for every piece of every core's arrays, and for its header."""
    wanted = {a.name: pieces(a.nbytes) for a in arrays}
    return [file["name"] for file in manifest["files"]] == [layout.core_file(core) for core in range(cores)] and all(
        type(file["header"]) is str
        and {name: len(sums) for name, sums in file["arrays"].items()} == wanted
        and all(type(each) is str for sums in file["arrays"].values() for each in sums)
        for file in manifest["files"]
    )


def open_core(path: Path, arrays: tuple[Operand, ...], header: str, sink: Sink) -> dict[str, SafeTensor]:
    """A core's tensors; nothing, and why in the sink, where they are not exactly those of `arrays`."""
    mapped = map_file(path, sink)
    if mapped is None:
        return {}
    first, _ = layout.header(arrays)
    # A file that is cut short, or goes on, is told by the format's own rules.
    if len(mapped) == len(first) + sum(a.nbytes for a in arrays):
        actual = checksum(mapped[: len(first)])
        if mapped[: len(first)] != first or actual != header:
            sink.report(
                "E432",
                f"`{path}` is damaged: its header is not what was packed",
                notes=(f"in the manifest {header}, in the file {actual}",),
                helps=AGAIN,
            )
            return {}
    tensors = open_safetensors(path, sink)
    if tensors is not None and len(mapped) != len(first) + sum(a.nbytes for a in arrays):
        sink.report("E432", f"`{path}` does not hold what the manifest says")
    return tensors or {}


def check_texts(folder: Path, texts: Mapping[str, str], sink: Sink) -> None:
    """Tokenizer, templates and configs: each as it was packed, and no other beside them that would be read."""
    for name, expected in texts.items():
        path = folder / name
        try:
            actual = checksum(path.read_bytes()) if path.is_file() else None
        except OSError as e:
            sink.report("E401", f"`{path}` cannot be read: {e.strerror or e}")
            continue
        if actual is None:
            sink.report("E432", f"`{path}` is absent, and was packed", helps=AGAIN)
        elif actual != expected:
            sink.report(
                "E432",
                f"`{path}` is damaged: it has another checksum",
                notes=(f"in the manifest {expected}, in the file {actual}",),
                helps=AGAIN,
            )
    for path in kept_files(folder):
        if path.name not in texts and path.name != MANIFEST:
            sink.report(
                "E432",
                f"`{path}` was not packed",
                helps=("put it into the checkpoint and pack that, or take it out of the folder",),
            )


def damage(path: Path, tensor: SafeTensor, expected: Sequence[str]) -> Diagnostic | None:
    """An array's pieces against their checksums; the first one that differs."""
    data = memoryview(tensor.array().reshape(-1)).cast("B")
    for number, one in enumerate(expected):
        at = number * checksums.PIECE
        actual = checksum(data[at : at + checksums.PIECE])
        if actual != one:
            end = min(at + checksums.PIECE, len(data))
            notes = (f"its bytes {at} .. {end}: in the manifest {one}, in the file {actual}",)
            message = f"`{path}` is damaged: `{tensor.name}` has another checksum"
            return Diagnostic(
                "E432", message, notes=notes, helps=(*AGAIN, f"`mks pack --check {path.parent}` looks at all of them")
            )
    return None
