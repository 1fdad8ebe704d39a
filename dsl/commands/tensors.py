"""`--checkpoint DIR`: not only its config, but also the tensors of its files, where it has some."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ..diagnostics import Diagnostic
from ..model.instance import Instance

GROUP = "mks.checkpoints"


def compared(instance: Instance, folder: Path, overridden: Collection[str]) -> list[Diagnostic]:
    """What another package that reads checkpoints says of a model at its sizes; `overridden` were given by hand."""
    from importlib.metadata import entry_points

    diagnostics: list[Diagnostic] = []
    for point in entry_points(group=GROUP):
        diagnostics += point.load()(instance, folder, overridden)
    return diagnostics
