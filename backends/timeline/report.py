"""What `mks plan --time` asks for."""

from __future__ import annotations

from typing import Any

from ...dsl.program import ir as p
from ..pallas.cycles.bundle_cache import kept
from .summary import predict
from .text import as_text, record


def report(program: p.Program, position: int | None = None) -> tuple[str, dict[str, Any]]:
    """The prediction of a Program's step in words, and as data."""
    prediction = predict(program, position, bundles=kept(program))
    return as_text(prediction), record(prediction)
