"""What `mks plan --svg`, `--trace` and `--html` ask for."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ...dsl.program import ir as p
from ..pallas.cycles.bundle_cache import kept
from ..timeline.summary import Prediction, predict
from . import perfetto
from .memory import memory
from .page import page
from .svg import document
from .timeline import timeline


def draw(program: p.Program, position: int | None, kinds: Collection[str]) -> dict[str, str]:
    """The texts of files, by kind: `svg`, VMEM over the step above a timeline; `trace`, for Perfetto; `html`."""
    prediction = predict(program, position, savings=False, bundles=kept(program))
    return {kind: _KINDS[kind](prediction) for kind in kinds}


def _svg(prediction: Prediction) -> str:
    return document([memory(prediction), timeline(prediction)])


_KINDS: dict[str, Callable[[Prediction], str]] = {"svg": _svg, "trace": perfetto.trace, "html": page}
