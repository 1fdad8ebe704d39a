"""The schedule that a command means."""

from __future__ import annotations

from collections.abc import Mapping

from ..diagnostics import Diagnostic, Label, did_you_mean
from ..model.ir import Model
from .ir import Schedule


def choose_schedule(
    schedules: Mapping[tuple[str, str], Schedule | None], model: Model, name: str | None
) -> Schedule | Diagnostic:
    """A model's schedule of this name, or its only one; `schedules` are a sound definition's."""
    own = {key[1]: schedule for key, schedule in schedules.items() if key[0] == model.name and schedule is not None}
    known = ", ".join(f"`{other}`" for other in own)
    at = Label(model.span)
    if not own:
        return Diagnostic(
            "E435",
            f"`{model.name}` has no schedule, which says how its weights lie",
            at,
            helps=(f"`target v5e 1x1` and `context 2048` in `schedule one for {model.name}` are a complete one",),
        )
    if name is None:
        if len(own) == 1:
            return next(iter(own.values()))
        return Diagnostic(
            "E435",
            f"`{model.name}` has several schedules: {known}",
            at,
            helps=(f"`--schedule {next(iter(own))}` takes that one",),
        )
    if name in own:
        return own[name]
    return Diagnostic(
        "E435",
        f"`{model.name}` has no schedule `{name}`",
        at,
        notes=(f"it has {known}",),
        helps=did_you_mean(name, own),
    )
