"""From a file to everything that it defines, with all that is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from attrs import field

from .diagnostics import Diagnostic, Label, Sink, did_you_mean, ordered
from .model import ir as m
from .model.check_instance import check_instance, check_taps
from .model.instance import Instance
from .model.instantiate import instantiate
from .model.resolve import resolve
from .records import define, frozen
from .schedule.fits import check_shares
from .schedule.ir import Schedule, Speculation
from .schedule.resolve import resolve_schedule
from .schedule.speculation import resolve_speculation
from .source import Source
from .text import syntax as s
from .text.files import read_source
from .text.parse import parse

type Reader = Callable[[Path], Source | Diagnostic]


@frozen
class Definition:
    """What a file defines, with what it uses; `main` names its own models, `own_schedules` model and schedule.

    `instances` are models without errors at the sizes that the text gives. A schedule is `None` where it, or its
    model, has errors. `files` are all that were read, used ones first.
    """

    file: s.File
    models: dict[str, m.Model]
    instances: dict[str, Instance]
    main: tuple[str, ...]
    schedules: dict[tuple[str, str], Schedule | None]
    own_schedules: tuple[tuple[str, str], ...]
    speculations: dict[str, Speculation]
    diagnostics: tuple[Diagnostic, ...]
    files: tuple[s.File, ...]

    @property
    def failed(self) -> bool:
        """Whether an error was found."""
        return any(d.severity == "error" for d in self.diagnostics)


@define
class _Gathered:
    """All files of one compilation, used ones first."""

    read: Reader
    sink: Sink = field(factory=Sink)
    files: list[s.File] = field(factory=list)
    models: dict[str, tuple[s.Model, frozenset[str]]] = field(factory=dict)
    schedules: dict[tuple[str, str], s.Schedule] = field(factory=dict)
    speculations: dict[str, s.Speculate] = field(factory=dict)
    damaged: frozenset[str] = frozenset()
    open: list[Path] = field(factory=list)
    done: set[Path] = field(factory=set)


def check_source(source: Source, folder: Path | None = None, read: Reader = read_source) -> Definition:
    """Parse and resolve a file; `folder` is where its `use` lines look (default: the file's own), `read` opens them."""
    gathered = _Gathered(read)
    path = Path(source.name)
    file = _gather(source, path, folder or path.parent, gathered)
    models: dict[str, m.Model] = {}
    instances: dict[str, Instance] = {}
    for name, (declared, damaged) in gathered.models.items():
        before = len(gathered.sink.diagnostics)
        models[name] = resolve(declared, models, damaged, gathered.sink)
        if not damaged and not any(d.severity == "error" for d in gathered.sink.diagnostics[before:]):
            instance, problems = instantiate(models[name])
            gathered.sink.diagnostics.extend(problems)
            if instance is not None and check_instance(instance, gathered.sink):
                instances[name] = instance
    for instance in instances.values():
        drafted = instance.model.drafts
        if drafted is not None and drafted.name in instances:
            check_taps(instance, instances[drafted.name], gathered.sink)
    main = tuple(item.name.text for item in file.items if isinstance(item, s.Model))
    schedules = _schedules(gathered, models, instances)
    speculations = {}
    for name, pairing in gathered.speculations.items():
        speculation = resolve_speculation(pairing, models, schedules, gathered.sink)
        if speculation is not None:
            speculations[name] = speculation
    own = tuple((i.model.text, i.name.text) for i in file.items if isinstance(i, s.Schedule))
    return Definition(
        file,
        models,
        instances,
        main,
        schedules,
        own,
        speculations,
        ordered(gathered.sink.diagnostics),
        tuple(gathered.files),
    )


def _schedules(
    gathered: _Gathered, models: dict[str, m.Model], instances: dict[str, Instance]
) -> dict[tuple[str, str], Schedule | None]:
    """By model and name; `None` where a schedule, or its model, has errors."""
    resolved: dict[tuple[str, str], Schedule | None] = {}
    for key, declared in gathered.schedules.items():
        model = models.get(key[0])
        if model is None:
            if key[0] not in gathered.damaged:
                gathered.sink.report(
                    "E122", f"unknown model `{key[0]}`", declared.model.span, helps=did_you_mean(key[0], models)
                )
            continue
        if key[0] not in instances or gathered.damaged:
            resolved[key] = None
            continue
        schedule = resolve_schedule(declared, model, gathered.sink)
        fits = schedule is not None and check_shares(schedule, instances[key[0]], gathered.sink)
        resolved[key] = schedule if fits else None
    return resolved


def _gather(source: Source, path: Path, folder: Path, gathered: _Gathered) -> s.File:
    file, problems = parse(source)
    gathered.sink.diagnostics.extend(problems)
    gathered.open.append(path.resolve())
    for item in file.items:
        if isinstance(item, s.Use):
            _use(item, folder, gathered)
        elif isinstance(item, s.Model):
            first = gathered.models.get(item.name.text)
            if first is not None:
                gathered.sink.report(
                    "E122",
                    f"model `{item.name.text}` is defined twice",
                    item.name.span,
                    others=(Label(first[0].name.span, "first here"),),
                )
            else:
                gathered.models[item.name.text] = (item, file.damaged)
        elif isinstance(item, s.Schedule):
            schedule = gathered.schedules.setdefault((item.model.text, item.name.text), item)
            if schedule is not item:
                gathered.sink.report(
                    "E122",
                    f"schedule `{item.name.text}` is defined twice",
                    item.name.span,
                    others=(Label(schedule.name.span, "first here"),),
                )
        elif isinstance(item, s.Speculate):
            pairing = gathered.speculations.setdefault(item.name.text, item)
            if pairing is not item:
                gathered.sink.report(
                    "E122",
                    f"`{item.name.text}` is defined twice",
                    item.name.span,
                    others=(Label(pairing.name.span, "first here"),),
                )
    gathered.damaged |= file.damaged
    gathered.files.append(file)
    gathered.open.pop()
    return file


def _use(item: s.Use, folder: Path, gathered: _Gathered) -> None:
    path = folder / item.path.value
    read = gathered.read(path)
    if isinstance(read, Diagnostic):
        near = did_you_mean(path.name, (p.name for p in folder.glob("*.mks")) if folder.is_dir() else ())
        gathered.sink.report(
            "E123", f"cannot read `{item.path.value}`", item.path.span, notes=(read.message,), helps=near
        )
        return
    if path.resolve() in gathered.open:
        circle = " -> ".join(p.name for p in [*gathered.open, path])
        gathered.sink.report("E123", f"files use each other: {circle}", item.span)
        return
    if path.resolve() in gathered.done:
        return
    gathered.done.add(path.resolve())
    _gather(read, path, path.parent, gathered)


def load_definition(path: str | Path) -> Definition:
    """Read and check a file; raises `OSError` or `UnicodeDecodeError` where it cannot be read."""
    return check_source(Source(str(path), Path(path).read_text("utf-8")))
