"""Finds a definition: one that is shipped, a file, or one that an installed package brings."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import ModuleType
from typing import Any

from attrs import evolve

from ..dsl.diagnostics import Diagnostic, Sink, did_you_mean
from ..dsl.source import Source
from ..dsl.text.files import decode_source, read_source

# A package offers a definition as `[project.entry-points."mks.definitions"]`, `name = "package"` (which holds
# `name.mks`) or `name = "package:object"`: a path, or a function without arguments that returns one.
GROUP = "mks.definitions"


def shipped() -> tuple[str, ...]:
    """The names of all shipped definitions."""
    return tuple(sorted(f.name.removesuffix(".mks") for f in files(__package__).iterdir() if f.name.endswith(".mks")))


def find_definition(name: str | Path) -> tuple[Source | None, list[Diagnostic]]:
    """The text, by shipped name, by path (with a separator, or ending in `.mks`) or from an installed package."""
    sink, text = Sink(), str(name)
    if isinstance(name, Path) or text.endswith(".mks") or "/" in text or "\\" in text:
        return _read(Path(text).expanduser(), sink), sink.diagnostics
    if text in shipped():
        return _read(files(__package__) / f"{text}.mks", sink), sink.diagnostics
    brought = {point.name: point for point in entry_points(group=GROUP)}
    if text in brought:
        path = _brought_path(brought[text], sink)
        return (None if path is None else _read(path, sink)), sink.diagnostics
    known = sorted({*shipped(), *brought})
    sink.report(
        "E400",
        f"there is no definition `{text}`",
        notes=(f"known: {', '.join(known)}",),
        helps=(*did_you_mean(text, known), "a path to a file ends in `.mks`"),
    )
    return None, sink.diagnostics


def _brought_path(point: EntryPoint, sink: Sink) -> Traversable | None:
    """The file that an entry point means."""
    try:
        path: Any = point.load()
        if isinstance(path, ModuleType):
            return files(path) / f"{point.name}.mks"
        path = path() if callable(path) else path
    except Exception as e:  # a package that is not ours: whatever it raises is its fault, and is said
        sink.report(
            "E400",
            f"`{point.value}`, which brings the definition `{point.name}`, fails",
            notes=(f"{type(e).__name__}: {e}",),
        )
        return None
    if isinstance(path, str):
        return Path(path)
    if isinstance(path, Traversable):
        return path
    sink.report(
        "E400",
        f"`{point.value}` brings no path for the definition `{point.name}`",
        notes=(f"it is a {type(path).__name__}",),
    )
    return None


def _read(path: Traversable, sink: Sink) -> Source | None:
    # What lies in an archive has no path of its own.
    source = read_source(path) if isinstance(path, Path) else decode_source(str(path), path.read_bytes())
    if isinstance(source, Source):
        return source
    if isinstance(path, Path) and path.parent.is_dir():
        source = evolve(
            source, helps=source.helps or did_you_mean(path.name, (f.name for f in path.parent.glob("*.mks")))
        )
    sink.diagnostics.append(source)
    return None
