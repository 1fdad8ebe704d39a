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
    source, found = find_definition(name)
    if source is None:
        raise MksError(found)
    definition = check_source(source)
    if definition.failed and not scheduled:
        definition, more = _without_faulty(definition)
        found += more
    found += definition.diagnostics
    if definition.failed:
        raise MksError(found)
    return definition, main_model(definition, name), found


def _without_faulty(definition: Definition) -> tuple[Definition, list[Diagnostic]]:
    """A definition without its schedules that have errors, and a warning of each; the same where that does not help.

    Their text becomes blanks, so that all else stays where it is. Pairings of schedules go with them.
    """
    items = [item for item in definition.file.items if isinstance(item, s.Schedule | s.Speculate)]
    wrong = {id(item): [d for d in definition.diagnostics if d.severity == "error" and _within(item.span, d)]
             for item in items}  # fmt: skip
    source, text = definition.file.source, definition.file.source.text
    for item in items:
        if wrong[id(item)] or isinstance(item, s.Speculate):
            blank = "".join(c if c in "\r\n" else " " for c in item.span.text)
            text = text[: item.span.start] + blank + text[item.span.end :]
    other = check_source(Source(source.name, text))
    if other.failed:
        return definition, []
    return other, [
        Diagnostic("W202", f"`{item.name.text}` has errors, and is left out: nothing is scheduled here",
                   Label(item.name.span), notes=tuple(f"{d.code}: {d.message}" for d in wrong[id(item)]),
                   helps=("`mks check` shows where",))
        for item in items if wrong[id(item)]
    ]  # fmt: skip


def _within(span: Span, found: Diagnostic) -> bool:
    at = None if found.primary is None else found.primary.span
    return at is not None and at.source is span.source and span.start <= at.start < span.end


def main_model(definition: Definition, name: str) -> Model:
    """The first that is no drafter, those that the file has a schedule of first. Raises `CannotOpen`."""
    own = {key[0]: None for key in definition.own_schedules} | dict.fromkeys(definition.main)
    models = [definition.models[each] for each in own]
    chosen = next((model for model in models if model.drafts is None), None)
    if chosen is None:
        what = "only drafts for another model" if models else "holds no model"
        raise CannotOpen(f"`{name}` {what}; it cannot be run by itself")
    return chosen


def checkpoint_place(
    model: str, given: Path | None, found: list[Diagnostic], loading: Loading = silent
) -> Path:  # fmt: skip
    """The checkpoint that is named, or the model's own, converted if need be; warnings go to `found`."""
    if given is not None:
        return given.expanduser()
    with loading(f"Converting the checkpoint of {model}") as progress:
        place, more = default_checkpoint(model, progress)
    found += more
    if place is None and more:
        raise MksError(found)
    if place is None:
        raise CannotOpen(f"`{model}` comes without a checkpoint; name one with --checkpoint")
    return place


def text_place(place: Path) -> Path:
    """Where the text files are: the folder, or the GGUF file that is all there is."""
    if place.is_file():
        return place if place.suffix == ".gguf" else place.parent
    alone = sorted(place.glob("*.gguf"))
    return alone[0] if len(alone) == 1 and not any(place.glob("*.safetensors")) else place


def bind(
    model: Model, place: Path, found: list[Diagnostic], *, adopt: bool, sizes: Mapping[str, int | float] | None,
    dtype: str,
) -> Binding:  # fmt: skip
    """A checkpoint that fits the model; warnings go to `found`. Raises `MksError` with all that is wrong.

    `adopt` takes the sizes from its config; `dtype` is the working type, or `auto`.
    """
    binding, more = load(model, place, adopt=adopt, overrides=sizes, working=None if dtype == "auto" else dtype)
    found += more
    if binding is None:
        raise MksError(found)
    return binding


def find_schedule(definition: Definition, model: Model, name: str | None, found: Iterable[Diagnostic] = ()) -> Schedule:
    """A model's only schedule, or the one that is named. Raises `MksError`, with what was `found` before."""
    chosen = choose_schedule(definition.schedules, model, name)
    if isinstance(chosen, Diagnostic):
        raise MksError([*found, chosen])
    return chosen
