"""From a file to everything that it defines, with all that is wrong with it."""

from __future__ import annotations

from pathlib import Path

from attrs import define, field, frozen

from . import model as m
from . import syntax as s
from .diagnostics import Diagnostic, Label, Sink, did_you_mean, ordered
from .parse import parse
from .resolve import resolve
from .source import Source


@frozen
class Definition:
    """What a file defines, its own blocks and those that it uses; `main` names its own models, in order."""

    file: s.File
    models: dict[str, m.Model]
    main: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def failed(self) -> bool:
        """Whether an error was found."""
        return any(d.severity == "error" for d in self.diagnostics)


@define
class _Gathered:
    """All files of one compilation, used ones first."""

    sink: Sink = field(factory=Sink)
    models: dict[str, tuple[s.Model, frozenset[str]]] = field(factory=dict)
    open: list[Path] = field(factory=list)
    done: set[Path] = field(factory=set)


def check_source(source: Source, folder: Path | None = None) -> Definition:
    """Parse and resolve a file; `folder` is where its `use` lines look (default: the file's own)."""
    gathered = _Gathered()
    path = Path(source.name)
    file = _gather(source, path, folder or path.parent, gathered)
    models: dict[str, m.Model] = {}
    for name, (declared, damaged) in gathered.models.items():
        models[name] = resolve(declared, models, damaged, gathered.sink)
    main = tuple(item.name.text for item in file.items if isinstance(item, s.Model))
    return Definition(file, models, main, ordered(gathered.sink.found))


def _gather(source: Source, path: Path, folder: Path, gathered: _Gathered) -> s.File:
    file, found = parse(source)
    gathered.sink.found.extend(found)
    gathered.open.append(path.resolve())
    damaged = getattr(file, "damaged", frozenset())
    for item in file.items:
        if isinstance(item, s.Use):
            _use(item, folder, gathered)
        elif isinstance(item, s.Model):
            first = gathered.models.get(item.name.text)
            if first is not None:
                gathered.sink.report("E122", f"model `{item.name.text}` is defined twice", item.name.span,
                                     others=(Label(first[0].name.span, "first here"),))  # fmt: skip
            else:
                gathered.models[item.name.text] = (item, damaged)
    gathered.open.pop()
    return file


def _use(item: s.Use, folder: Path, gathered: _Gathered) -> None:
    path = folder / item.path.value
    if path.resolve() in gathered.open:
        circle = " -> ".join(p.name for p in [*gathered.open, path])
        gathered.sink.report("E123", f"files use each other: {circle}", item.span)
        return
    if path.resolve() in gathered.done:
        return
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as e:
        near = did_you_mean(path.name, (p.name for p in folder.glob("*.mks")) if folder.is_dir() else ())
        gathered.sink.report("E123", f"cannot read `{item.path.value}`: {_reason(e)}", item.path.span, helps=near)
        return
    gathered.done.add(path.resolve())
    _gather(Source(str(path), text), path, path.parent, gathered)


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)


def load_definition(path: str | Path) -> Definition:
    """Read and check a file; raises `OSError` or `UnicodeDecodeError` where it cannot be read."""
    return check_source(Source(str(path), Path(path).read_text("utf-8")))
