"""A checkpoint folder: which of its files belong to the model, and what is wrong with them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ...dsl.diagnostics import Diagnostic, Sink, did_you_mean
from .safetensors_file import SafeTensor, open_safetensors
from .safetensors_header import check_start
from .tensors import Checkpoint, Stored, listed

INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5,6})-of-(?P<count>\d{5,6})\.safetensors")


def open_checkpoint(path: str | Path) -> tuple[Checkpoint | None, list[Diagnostic]]:
    """A checkpoint folder, or one `.safetensors` or `.gguf` file; `None` if anything is wrong with its files."""
    checkpoint, diagnostics = scan_checkpoint(path)
    return (None if any(d.severity == "error" for d in diagnostics) else checkpoint), diagnostics


def scan_checkpoint(path: str | Path) -> tuple[Checkpoint | None, list[Diagnostic]]:
    """As `open_checkpoint`, but what is sound of a damaged checkpoint is returned too, so that more can be said."""
    path, sink = Path(path).expanduser(), Sink()
    try:
        return _scan(path, sink), sink.diagnostics
    except OSError as e:
        sink.report("E401", f"`{path}` cannot be read: {e.strerror or e}")
        return None, sink.diagnostics


def _scan(path: Path, sink: Sink) -> Checkpoint | None:
    if not path.exists():
        near = sorted(p.name for p in path.parent.iterdir()) if path.parent.is_dir() else []
        sink.report("E401", f"there is no checkpoint `{path}`", helps=did_you_mean(path.name, near))
        return None
    if path.is_file():
        if path.suffix == ".gguf":
            return _gguf(path, sink)
        if path.suffix == ".safetensors":
            return Checkpoint(path.parent, _config(path.parent, sink), _merged([path], sink))
        sink.report("E401", f"`{path}` is neither a folder nor a .safetensors or .gguf file")
        return None
    if (path / INDEX).exists():
        tensors = _indexed(path, sink)
        return None if tensors is None else Checkpoint(path, _config(path, sink), tensors)
    files = _weight_files(path, sink)
    if files is None:
        return None
    if files[0].suffix == ".gguf":
        return _gguf(files[0], sink)
    return Checkpoint(path, _config(path, sink), _merged(files, sink))


def _gguf(path: Path, sink: Sink) -> Checkpoint | None:
    from .gguf_file import open_gguf  # the library takes a while to import and few checkpoints need it

    opened = open_gguf(path, sink)
    return None if opened is None else opened[0]


def _config(folder: Path, sink: Sink) -> dict[str, Any] | None:
    path = folder / "config.json"
    if not path.exists():
        sink.report("W414", f"`{folder}` has no config.json; only the shapes of tensors can be compared")
        return None
    return _json_object(path, "E414", sink)


def _json_object(path: Path, code: str, sink: Sink) -> dict[str, Any] | None:
    if not path.is_file():
        sink.report(code, f"`{path}` is not a file")
        return None
    data = path.read_bytes()
    if not check_start(str(path), data, len(data), sink):
        return None
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as e:
        reason = "it nests too deep" if isinstance(e, RecursionError) else str(e)
        sink.report(code, f"`{path}` is not JSON", notes=(reason,))
        return None
    if not isinstance(value, dict):
        sink.report(code, f"`{path}` is not a JSON object")
        return None
    return value


def _weight_files(folder: Path, sink: Sink) -> list[Path] | None:
    """The files to read where no index says it: `model.safetensors`, one set of shards, or the only file."""
    if (folder / "model.safetensors").exists():
        return [folder / "model.safetensors"]
    files = sorted(folder.glob("*.safetensors"))
    sets: dict[tuple[str, str], dict[int, Path]] = {}
    for file in files:
        shard = _SHARD.fullmatch(file.name)
        if shard:
            sets.setdefault((shard["stem"], shard["count"]), {})[int(shard["number"])] = file
    if len(sets) == 1:
        (((stem, count), shards),) = sets.items()
        absent = [n for n in range(1, int(count) + 1) if n not in shards]
        if absent:
            names = [f"`{stem}-{n:0{len(count)}d}-of-{count}.safetensors`" for n in absent]
            sink.report("E407", f"`{folder}` lacks {len(absent)} of {int(count)} shards: {listed(names)}")
        return [shards[n] for n in sorted(shards)]
    candidates = files or sorted(folder.glob("*.gguf"))
    if len(candidates) == 1:
        return candidates
    if candidates:
        names = [f"`{file.name}`" for file in candidates]
        sink.report(
            "E401",
            f"`{folder}` holds several weight files and no index: {listed(names)}",
            helps=("name the file itself as the checkpoint",),
        )
    else:
        what = "is empty" if not any(folder.iterdir()) else "holds no .safetensors and no .gguf file"
        sink.report("E401", f"`{folder}` {what}")
    return None


def _merged(files: list[Path], sink: Sink) -> dict[str, Stored]:
    """The tensors of all files; a name in two of them is an error."""
    merged: dict[str, Stored] = {}
    for file in files:
        tensors = open_safetensors(file, sink) or {}
        twice = [f"`{name}`" for name in tensors if name in merged]
        if twice:
            other = merged[twice[0].strip("`")].file
            sink.report("E405", f"`{file}` holds tensors that `{other}` holds too: {listed(twice)}")
        merged.update(tensors)
    return merged


def _indexed(folder: Path, sink: Sink) -> dict[str, Stored] | None:
    """The tensors that the index lists, from the files where it says they are; all other files are left alone."""
    path = folder / INDEX
    index = _json_object(path, "E408", sink)
    if index is None:
        return None
    files = index.get("weight_map")
    if not isinstance(files, dict) or not files:
        sink.report("E408", f"`{path}` has no `weight_map` from tensors to files")
        return None
    unsafe = sorted({repr(file) for file in files.values() if not _safe(file)})
    if unsafe:
        sink.report("E408", f"`{path}` names files that are not in its folder: {listed(unsafe)}")
        return None
    wanted: dict[str, list[str]] = {}
    for name, file in files.items():
        wanted.setdefault(file, []).append(name)
    opened: dict[str, dict[str, SafeTensor]] = {}
    for file in sorted(wanted):
        if not (folder / file).exists():
            sink.report(
                "E407",
                f"`{path}` names `{file}`, which is absent",
                notes=(f"it should hold {listed([f'`{n}`' for n in wanted[file]], 3)}",),
            )
            continue
        tensors = open_safetensors(folder / file, sink)
        if tensors is not None:
            opened[file] = tensors
    return _placed(path, wanted, opened, sink)


def _placed(
    index: Path, wanted: dict[str, list[str]], opened: dict[str, dict[str, SafeTensor]], sink: Sink
) -> dict[str, Stored]:
    stored: dict[str, Stored] = {}
    for file, tensors in opened.items():
        lost = [name for name in wanted[file] if name not in tensors]
        stored.update((name, tensors[name]) for name in wanted[file] if name in tensors)
        if lost:
            elsewhere = sorted({f for f, others in opened.items() for name in lost if name in others})
            sink.report(
                "E409",
                f"`{index}` puts tensors in `{file}` that it does not hold: {listed([f'`{name}`' for name in lost])}",
                notes=tuple(f"`{f}` holds some of them" for f in elsewhere[:3]),
            )
    return stored


def _safe(file: Any) -> bool:
    """Whether a file of an index is a plain name in its folder."""
    return isinstance(file, str) and file not in ("", ".", "..") and not re.search(r"[/\\:\x00]", file)
