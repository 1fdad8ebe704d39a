"""A step as a trace for Perfetto and Chrome: an array of events in JSON, one thread for each lane."""

from __future__ import annotations

import json
from typing import Any

from ..timeline.summary import Prediction
from .lanes import Event, Lane, lanes
from .windows import scope_events

MOST = 200_000
_PROCESS = 1


def trace(prediction: Prediction, most: int = MOST) -> str:
    """The whole step, in microseconds, by ascending time. Of more than `most` events the shortest are left out."""
    program = prediction.program
    parts = Lane("parts", "part", "parts", tuple(scope_events(prediction)))
    every = list(enumerate((parts, *lanes(prediction)), 1))
    slices = [(number, lane, event) for number, lane in every for event in lane.events]
    left_out = max(0, len(slices) - most)
    if left_out:
        slices = sorted(slices, key=lambda each: each[2].start - each[2].stop)[:most]
    slices.sort(key=lambda each: (each[2].start, each[0]))
    title = (
        f"{program.schedule.name} of {program.schedule.model.name}, {program.of.words} at position "
        f"{prediction.position}, predicted"
    )
    events = [
        _named("process_name", 0, title),
        *(
            metadata
            for number, lane in every
            for metadata in (_named("thread_name", number, lane.name), _sorted(number))
        ),
    ]
    if left_out:
        events.append(_named("process_labels", 0, f"{left_out} shortest events left out"))
    events += [_event(number, lane, event) for number, lane, event in slices]
    return "[\n" + ",\n".join(json.dumps(event, separators=(",", ":")) for event in events) + "\n]\n"


def _named(what: str, thread: int, name: str) -> dict[str, Any]:
    key = "labels" if what == "process_labels" else "name"
    return {"ph": "M", "pid": _PROCESS, "tid": thread, "ts": 0, "name": what, "args": {key: name}}


def _sorted(thread: int) -> dict[str, Any]:
    order = {"sort_index": thread}
    return {"ph": "M", "pid": _PROCESS, "tid": thread, "ts": 0, "name": "thread_sort_index", "args": order}


def _event(thread: int, lane: Lane, event: Event) -> dict[str, Any]:
    args: dict[str, Any] = {}
    if event.where.scope:
        args["in"] = event.where.scope
    if event.where.layer is not None:
        args["layer"] = event.where.layer
    if event.bytes:
        args["bytes"] = event.bytes
    if event.held > event.stop:
        args["lies there until"] = _us(event.held)
    if event.about:
        args["about"] = event.about
    start = _us(event.start)
    # Rounded at both ends, so that what follows still does.
    return {
        "ph": "X",
        "pid": _PROCESS,
        "tid": thread,
        "ts": start,
        "dur": round(_us(event.stop) - start, 4),
        "name": event.label,
        "cat": lane.kind,
        "args": args,
    }


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 4)
