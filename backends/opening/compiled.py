"""Compiled steps, compared with what they are to serve."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from ...dsl.commands.config import read_config
from ...dsl.diagnostics import Diagnostic, MksError
from ...dsl.model.instantiate import instantiate
from ...dsl.program.lower.lower import lower
from ...models.library import shipped
from .compiled_folder import Step, Steps
from .load_pallas import Source, sized

if TYPE_CHECKING:
    from ...dsl.model.instance import Instance
    from ...dsl.program.ir import Program
    from ...dsl.schedule.ir import Schedule

# What must be the same, and what messages call it.
_NAMED = {
    "model": "model",
    "schedule": "schedule",
    "dtype": "working type",
    "target": "target",
    "topology": "topology",
    "mesh": "mesh",
    "rows": "rows",
    "consecutive": "consecutive tokens",
    "context": "context",
}

# How a step was compiled otherwise, and what more to say of it.
type Difference = tuple[str, tuple[str, ...]]


@frozen
class Served:
    """A model that kernels are to serve: the text of its definition, and by what name it was found.

    `config` is the folder whose `config.json` gave the sizes, where one did.
    """

    definition: str = field(repr=False)
    name: str
    instance: Instance
    schedule: Schedule
    source: Source
    config: Path | None

    def program(self, rows: int, context: int) -> Program:
        """The decode step. Raises `MksError` where it does not fit."""
        schedule = sized(self.schedule, self.instance, rows, context)
        return lower(schedule, self.instance, rows, self.source.plain)

    def command(self, folder: Path, rows: int, context: int) -> str:
        """The `mks compile` that makes this step."""
        model, config = self.instance.model, self.config
        short = self.name.removesuffix(".mks")
        words = [short if short in shipped() else self.name]
        read = None if config is None else read_config(config / "config.json")
        if config is None or isinstance(read, Diagnostic):
            base, _ = instantiate(model)
        else:
            base, _ = instantiate(model, config=read, adopt=True)
            words += ["--checkpoint", str(config), "--adopt"]
        for name in model.sizes:
            value = self.instance.values[name]
            if base is None or base.values[name] != value:
                words += ["--size", f"{name}={value}"]
        words += ["--schedule", self.schedule.name, "--rows", str(rows), "--context", str(context)]
        return shlex.join(("mks", "compile", *words, "-o", str(folder)))


@frozen
class Compiled:
    """Compiled steps, and what they are to serve."""

    bundle: Steps
    served: Served

    def check(self, rows: int | None, context: int | None, devices: tuple[Any, ...] | None = None) -> tuple[int, int]:
        """Rows and context to serve with: those asked for, by default the most rows, and the context of their step.

        `devices` are the host's TPUs. Raises `MksError`: E508 for each thing in which the step differs from what is
        served, or from the versions that are installed here, and E509 where this host has not the TPUs.
        """
        from ..pallas.cycles.bundle_cache import versions
        from ..pallas.runtime.device import attached
        from ..pallas.runtime.executable import unfit_host
        from .artifact import identity

        step = next((step for step in self.bundle.steps if step.rows == rows), self.bundle.steps[-1])
        rows, context = rows or step.rows, context or step.context
        ours = {"definition": self.served.definition, **identity(self.served.program(rows, context))}
        folder, helps = self.bundle.folder, self._helps(rows, context)
        differences = [*self._differences(step, ours), *_of_versions(step.manifest["versions"], versions())]
        diagnostics = [
            Diagnostic("E508", f"`{folder}` was compiled {how}", None, (), notes, helps) for how, notes in differences
        ]
        diagnostics += unfit_host(str(folder), step.manifest, attached() if devices is None else devices)
        if diagnostics:
            raise MksError(diagnostics)
        return rows, context

    @property
    def fewest(self) -> Step:
        """The step with the fewest rows."""
        return self.bundle.steps[0]

    def executable(self, rows: int) -> Path:
        """The file of the step for so many rows, which `check` has seen."""
        from .artifact import EXECUTABLE

        return next(step.folder for step in self.bundle.steps if step.rows == rows) / EXECUTABLE

    def _differences(self, step: Step, ours: Mapping[str, Any]) -> Iterator[Difference]:
        theirs = step.manifest
        alike = theirs["definition"] == ours["definition"]
        if not alike:
            yield (
                "from another definition than the one that is served",
                first_difference(theirs["definition"], ours["definition"]),
            )
        pairs = [(key, what, theirs[key], ours[key]) for key, what in _NAMED.items()]
        sizes = (theirs["sizes"], ours["sizes"])
        pairs += [(name, f"size {name}", *(each.get(name) for each in sizes)) for name in {**sizes[0], **sizes[1]}]
        for key, what, there, here in pairs:
            if there != here:
                alike = alike and what in ("rows", "context")
                shown = ", ".join(str(step.rows) for step in self.bundle.steps) if what == "rows" else _shown(there)
                notes = ("`mks compile` compiles for bf16: serve, or pack, with `--dtype bf16`",) * (key == "dtype")
                yield f"for {what} {shown}, and what is served has {_shown(here)}", notes
        # Whatever else differs makes this differ, too.
        if alike and theirs["layout"] != ours["layout"]:
            notes = (f"layout {theirs['layout'][:16]} there, {ours['layout'][:16]} here",)
            yield "for another weight layout than the one that is served", notes

    def _helps(self, rows: int, context: int) -> tuple[str, ...]:
        if self.served.source.plain:
            return ("`mks compile` makes no step for it: the checkpoint has plain numbers where the definition packs",)
        return (f"`{self.served.command(self.bundle.folder, rows, context)}`",)


def _of_versions(theirs: Mapping[str, str], ours: Mapping[str, str]) -> Iterator[Difference]:
    for name, here in ours.items():
        if theirs.get(name) != here:
            yield f"with {name} {theirs.get(name)}, and this host has {here}", ()


def first_difference(theirs: str, ours: str) -> tuple[str, ...]:
    """The first lines in which two texts differ, for notes."""
    lines = zip_longest(theirs.splitlines(), ours.splitlines())
    at, (there, here) = next(((i, pair) for i, pair in enumerate(lines, 1) if pair[0] != pair[1]), (0, (None, None)))
    return tuple(
        f"line {at} {where}: {'nothing' if line is None else f'`{line.strip()}`'}"
        for where, line in (("there", there), ("here", here))
    )


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{axis}={length}" for axis, length in value.items()) or "of one core"
    if isinstance(value, list):
        return "x".join(map(str, value))
    return "none" if value is None else str(value)
