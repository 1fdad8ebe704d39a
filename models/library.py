"""Finds a definition: one that is shipped, a file, or one that an installed package brings."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import ModuleType

from attrs import evolve

from ..dsl.diagnostics import Diagnostic, Sink, did_you_mean
from ..dsl.installed import PackageError, entries, load, told
from ..dsl.source import Source
from ..dsl.text.files import decode_source, read_source

# A package offers a definition as `[project.entry-points."mks.definitions"]`, `name = "package"` (which holds
# `name.mks`) or `name = "package:object"`: a path, or a function without arguments that returns one.
GROUP = "mks.definitions"


def shipped() -> tuple[str, ...]:
    """The names of all shipped definitions."""
    return tuple(sorted(f.name.removesuffix(".mks") for f in files(__package__).iterdir() if f.name.endswith(".mks")))


def known() -> tuple[str, ...]:
    """The names of all definitions, those of installed packages with them."""
    return tuple(sorted({*shipped(), *entries(GROUP)}))


def find_definition(name: str | Path) -> tuple[Source | None, list[Diagnostic]]:
    """The text, by shipped name, by path (with a separator, or ending in `.mks`) or from an installed package."""
    sink, text = Sink(), str(name)
    if isinstance(name, Path) or text.endswith(".mks") or "/" in text or "\\" in text:
        return _read(Path(text).expanduser(), sink), sink.diagnostics
    if text in shipped():
        return _read(files(__package__) / f"{text}.mks", sink), sink.diagnostics
    brought = entries(GROUP)
    if text in brought:
        path = _brought_path(text, brought[text], sink)
        return (None if path is None else _read(path, sink)), sink.diagnostics
    names = known()
    sink.report(
        "E400",
        f"there is no definition `{text}`",
        notes=(f"known: {', '.join(names)}",),
        helps=(*did_you_mean(text, names), "a path to a file ends in `.mks`"),
    )
    return None, sink.diagnostics


def _brought_path(name: str, given: Sequence[EntryPoint], sink: Sink) -> Traversable | None:
    """The file that entry points of a name mean."""
    try:
        path = load(given)
        if isinstance(path, ModuleType):
            return files(path) / f"{name}.mks"
        path = path() if callable(path) else path
    except PackageError as e:
        sink.report("E400", f"no package brings a definition `{name}` that can be used", notes=(str(e),))
        return None
    except (Exception, SystemExit) as e:  # a package that is not ours: whatever it raises is its fault, and is said
        what = f"`{given[0].value}`, which brings the definition `{name}`, fails"
        sink.report("E400", what, notes=(told(e),))
        return None
    if isinstance(path, str):
        return Path(path)
    if isinstance(path, Traversable):
        return path
    what = f"`{given[0].value}` brings no path for the definition `{name}`"
    sink.report("E400", what, notes=(f"it is a {type(path).__name__}",))
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
