"""Which stretches of a step are shown: a layer of each kind, where the step has settled."""

from __future__ import annotations

from attrs import evolve, frozen

from ...dsl.program import ir as p
from ..timeline.summary import Prediction
from .lanes import Event
from .svg import PARTS

_AROUND = 0.4  # of a layer's time: how much of its neighbours is shown


@frozen
class Window:
    """`start .. stop` in seconds, shown from `begin` to `end`. `layer` is `None` outside of the layers."""

    name: str
    layer: int | None
    runs: int
    start: float
    stop: float
    begin: float
    end: float


def hues(program: p.Program) -> dict[str, str]:
    """The colour of each part, in the order of the text; all else has that of the whole step."""
    parts = [part for part in program.instance.model.parts if part in program.places]
    return {part: f"part{i % PARTS}" for i, part in enumerate(parts)}


def kinds(program: p.Program) -> list[tuple[tuple[str, ...], list[int]]]:
    """The layers that run the same parts, in order of their first."""
    by_kind: dict[tuple[str, ...], list[int]] = {}
    for layer, parts in (each for phase in program.phases for each in phase.layer_parts.items()):
        by_kind.setdefault(parts, []).append(layer)
    return list(by_kind.items())


def scope_events(prediction: Prediction) -> list[Event]:
    """When each part ran, and the step outside of the layers, without gaps."""
    events: list[Event] = []
    for span in prediction.trace.spans:
        last = events[-1] if events else None
        if last is None or (last.where.scope, last.where.layer) != (span.where.scope, span.where.layer):
            events.append(Event(span.start, span.stop, span.where.scope, span.where, span.where.scope))
        else:
            events[-1] = evolve(last, stop=span.stop)
    return events


def windows(prediction: Prediction) -> list[Window]:
    """One for each kind of layer, with the ends of its neighbours; the whole step where there are no layers."""
    ran = scope_events(prediction)
    result = []
    for parts, layers in kinds(prediction.program):
        # Of the middle, where rings are as they will be.
        layer = layers[len(layers) // 2]
        inside = [event for event in ran if event.where.layer == layer and event.where.scope in parts]
        if inside:
            start, stop = inside[0].start, inside[-1].stop
            around = _AROUND * (stop - start)
            name = f"layer {layer}: {', '.join(parts)}"
            result.append(
                Window(
                    name, layer, len(layers), start, stop, max(0.0, start - around), min(prediction.step, stop + around)
                )
            )
    return result or [Window("the step", None, 1, 0.0, prediction.step, 0.0, prediction.step)]


def columns(prediction: Prediction) -> list[Window]:
    """The whole step in brief: before the layers, a layer of each kind, after them."""
    ran = scope_events(prediction)
    layers = [event for event in ran if event.where.layer is not None]
    if not layers:
        return windows(prediction)
    first, last = layers[0].start, layers[-1].stop
    inner = [
        Window(w.name.partition(": ")[2], w.layer, w.runs, w.start, w.stop, w.start, w.stop)
        for w in windows(prediction)
    ]
    ends = (("before", 0.0, first), ("after", last, prediction.step))
    before, after = (Window(name, None, 1, start, stop, start, stop) for name, start, stop in ends)
    return [w for w in (before, *inner, after) if w.stop > w.start]
