"""What `import mks` gives: this folder is installed as the package `mks` itself, the rooms are its subpackages.

In: a model's name or file. Out: a `Decoder`. `python -m mks` is the command.

Order of imports: `__main__`.
"""

from __future__ import annotations

import warnings as _warnings
from collections.abc import Mapping as _Mapping
from os import PathLike as _PathLike
from pathlib import Path as _Path

from mks.backends.opening.cannot_open import CannotOpen
from mks.dsl.decoder import Decoder, PendingStep, Saved, StepResult
from mks.dsl.diagnostics import MksError

__all__ = ["CannotOpen", "Decoder", "MksError", "PendingStep", "Saved", "StepResult", "open"]

type _Place = str | _PathLike[str] | None


def open(
    model: str | _PathLike[str] | None = None,
    *,
    checkpoint: _Place = None,
    schedule: str | None = None,
    backend: str | None = None,
    rows: int | None = None,
    context: int | None = None,
    sizes: _Mapping[str, int | float] | None = None,
    sizes_from_config: bool = False,
    dtype: str | None = None,
    packed: _Place = None,
    compiled: _Place = None,
    tokens_per_row: int = 1,
    ahead: bool = False,
) -> Decoder:
    """A decoder for a model, with its weights read.

    `model` is a shipped definition's name or a `.mks` file; `checkpoint` a Hugging Face folder or a GGUF file, by
    default the one that comes with the model. `packed`, which needs no model, and `compiled` are folders that
    `mks pack` and `mks compile` wrote. `backend` is `reference`, plain JAX, or `pallas`, for kernels by the model's
    only schedule or the one named; by default kernels where a schedule, `packed` or `compiled` is given.
    `rows` sequences (1) of `context` positions (the model's, at most 4096) are held; where steps are compiled already,
    those of the compiled ones. A step takes up to `tokens_per_row` tokens of each. `sizes` are set by name, or all are
    taken from the checkpoint's config.json; `dtype` is `f32`, `bf16` or `auto`.
    With `ahead` all that calls can need is compiled now, and prompts are read in passes of one size, so that rows can
    be saved. Warnings are given as Python's. Raises `MksError` with all diagnostics, `OSError`, or
    `CannotOpen`, also where an argument is wrong.
    """
    # What it takes to run a model is imported when one is run: the checker starts without.
    from mks.backends.opening.load import open_model

    kernels = schedule is not None or packed is not None or compiled is not None
    opened = open_model(
        None if model is None else str(model),
        checkpoint=_path(checkpoint),
        sizes_from_config=sizes_from_config,
        sizes=sizes,
        backend=backend or ("pallas" if kernels else "reference"),
        schedule=schedule,
        dtype=dtype,
        packed=_path(packed),
        compiled=_path(compiled),
        tokens_per_row=tokens_per_row,
    )
    for warning in opened.warnings:
        _warnings.warn(f"{warning.code}: {warning.message}", stacklevel=2)
    return opened.decoder(*opened.room(rows, context), ahead)


def _path(place: _Place) -> _Path | None:
    return None if place is None else _Path(place)
