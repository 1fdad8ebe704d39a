"""What the command line names: a definition, a model of it, a schedule, a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...dsl.diagnostics import Diagnostic, Label, MksError
from ...dsl.frontend import Definition, check_source
from ...dsl.model.ir import Model
from ...dsl.schedule.choose import choose_schedule
from ...dsl.schedule.ir import Schedule
from ...dsl.source import Source, Span
from ...dsl.text import syntax as s
from ...models.checkpoint.load import load
from ...models.demo import default_checkpoint
from ...models.library import find_definition
from .cannot_open import CannotOpen
from .progress import Loading, silent

if TYPE_CHECKING:
    from ...models.checkpoint.binding import Binding


def find_model(name: str, *, scheduled: bool = True) -> tuple[Definition, Model, list[Diagnostic]]:
    """A definition, the model of it that is run, and warnings. Raises `MksError` or `CannotOpen`.

    Where nothing is `scheduled`, a schedule with errors is left out, with a warning.
    """
    source, diagnostics = find_definition(name)
    if source is None:
        raise MksError(diagnostics)
    definition = check_source(source)
    if definition.failed and not scheduled:
        definition, more = _without_faulty(definition)
        diagnostics += more
    diagnostics += definition.diagnostics
    if definition.failed:
        raise MksError(diagnostics)
    return definition, main_model(definition, name), diagnostics


def _without_faulty(definition: Definition) -> tuple[Definition, list[Diagnostic]]:
    """A definition without its schedules that have errors, and a warning of each; the same where that does not help.

    Their text becomes blanks, so that all else stays where it is. Pairings of schedules go with them.
    """
    items = [item for item in definition.file.items if isinstance(item, s.Schedule | s.Speculate)]
    wrong = {
        id(item): [d for d in definition.diagnostics if d.severity == "error" and _within(item.span, d)]
        for item in items
    }
    source, text = definition.file.source, definition.file.source.text
    for item in items:
        if wrong[id(item)] or isinstance(item, s.Speculate):
            blank = "".join(c if c in "\r\n" else " " for c in item.span.text)
            text = text[: item.span.start] + blank + text[item.span.end :]
    other = check_source(Source(source.name, text))
    if other.failed:
        return definition, []
    return other, [
        Diagnostic(
            "W202",
            f"`{item.name.text}` has errors, and is left out: nothing is scheduled here",
            Label(item.name.span),
            notes=tuple(f"{d.code}: {d.message}" for d in wrong[id(item)]),
            helps=("`mks check` shows where",),
        )
        for item in items
        if wrong[id(item)]
    ]


def _within(span: Span, diagnostic: Diagnostic) -> bool:
    at = None if diagnostic.primary is None else diagnostic.primary.span
    return at is not None and at.source is span.source and span.start <= at.start < span.end


def main_model(definition: Definition, name: str) -> Model:
    """The first that is no drafter, those that the file has a schedule of first. Raises `CannotOpen`."""
    own = {key[0]: None for key in definition.own_schedules} | dict.fromkeys(definition.main)
    models = [definition.models[each] for each in own]
    main = next((model for model in models if model.drafts is None), None)
    if main is None:
        what = "only drafts for another model" if models else "holds no model"
        raise CannotOpen(f"`{name}` {what}; it cannot be run by itself")
    return main


def checkpoint_place(model: str, given: Path | None, diagnostics: list[Diagnostic], loading: Loading = silent) -> Path:
    """The checkpoint that is named, or the model's own, converted if need be; warnings go to `diagnostics`."""
    if given is not None:
        return given.expanduser()
    with loading(f"Converting the checkpoint of {model}") as progress:
        path, more = default_checkpoint(model, progress)
    diagnostics += more
    if path is None and more:
        raise MksError(diagnostics)
    if path is None:
        raise CannotOpen(f"`{model}` comes without a checkpoint; name one as `checkpoint`")
    return path


def text_place(path: Path) -> Path:
    """Where the text files are: the folder, or the GGUF file that is all there is."""
    if path.is_file():
        return path if path.suffix == ".gguf" else path.parent
    alone = sorted(path.glob("*.gguf"))
    return alone[0] if len(alone) == 1 and not any(path.glob("*.safetensors")) else path


def bind(
    model: Model,
    path: Path,
    diagnostics: list[Diagnostic],
    *,
    adopt: bool,
    sizes: Mapping[str, int | float] | None,
    dtype: str,
) -> Binding:
    """A checkpoint that fits the model; warnings go to `diagnostics`. Raises `MksError` with all that is wrong.

    `adopt` takes the sizes from its config, and raises `CannotOpen` where it has none; `dtype` is the working type, or
    `auto`.
    """
    binding, more = load(model, path, adopt=adopt, overrides=sizes, working=None if dtype == "auto" else dtype)
    if adopt and any(each.code == "W414" for each in more):
        raise CannotOpen(f"sizes are to be taken from the config.json of `{path}`, but it has none; set them by name")
    diagnostics += more
    if binding is None:
        raise MksError(diagnostics)
    return binding


def find_schedule(
    definition: Definition, model: Model, name: str | None, diagnostics: Iterable[Diagnostic] = ()
) -> Schedule:
    """A model's only schedule, or the one that is named. Raises `MksError`, with the `diagnostics` so far."""
    schedule = choose_schedule(definition.schedules, model, name)
    if isinstance(schedule, Diagnostic):
        raise MksError([*diagnostics, schedule])
    return schedule
