"""The timeline of a layer of each kind and its neighbours: what HBM, each slot, the core's units and links do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import floor, log10

from attrs import evolve

from ...dsl.program import ir as p
from ..timeline.summary import Prediction
from . import svg
from .lanes import Event, Lane, lanes
from .svg import Drawing, rect, text, wide
from .windows import Window, hues, scope_events, windows

WIDTH = 1240.0
_LEFT, _RIGHT, _TOP = 150.0, 18.0, 62.0
_ROW, _SLOT, _GAP = 17.0, 10.0, 2.0
_SEEN = 0.35  # pixels: neighbours in a lane that are nearer than this are drawn as one
_SPENT = {"hbm": "HBM busy", "mxu": "matrix unit", "vpu": "vector unit", "wait": "waits"}


def timeline(prediction: Prediction) -> Drawing:
    """A panel for each kind of layer."""
    program, hue = prediction.program, hues(prediction.program)
    all_lanes, ran = lanes(prediction), scope_events(prediction)
    head = (
        f"Timeline: {program.schedule.name} of {program.schedule.model.name}, "
        f"{program.of.words} at position {prediction.position}"
    )
    step = f"{prediction.step * 1e3:.3f} ms a step, predicted; compute {prediction.compute}"
    body = [text(16, 26, head, "f-ink big"), text(16, 43, step, "f-soft"), *_legend(hue)]
    at = _TOP
    for window in windows(prediction):
        panel, height = _panel(program, window, all_lanes, ran, hue, at)
        body += panel
        at += height
    about = (
        f"For each kind of layer, one layer and parts of its neighbours over time. Rows: HBM, each ring's slots, "
        f"other transfers, matrix and vector unit, links, and where the core waits. {step}."
    )
    return Drawing("timeline", WIDTH, at + 8, head, about, "\n".join(body))


def _legend(hue: dict[str, str]) -> Iterator[str]:
    at = WIDTH - _RIGHT
    items = [
        *((part, f"f-{name}") for part, name in hue.items()),
        ("step", "f-whole"),
        ("arrived, not yet used", "f-whole held"),
        ("wait", "f-wait"),
    ]
    for label, classes in reversed(items):
        at -= wide(label)
        yield text(at, 43, label, "f-soft")
        at -= 16
        yield rect(at, 34, 11, 11, classes)
        at -= 14


def _panel(
    program: p.Program, window: Window, all_lanes: Sequence[Lane], ran: Sequence[Event], hue: dict[str, str], top: float
) -> tuple[list[str], float]:
    plot = WIDTH - _LEFT - _RIGHT
    scale = plot / (window.end - window.begin)

    def x(seconds: float) -> float:
        return _LEFT + (min(max(seconds, window.begin), window.end) - window.begin) * scale

    times = f", one of {window.runs} such layers" if window.runs > 1 else ""
    title = f"{window.name}{times}: {_us(window.stop - window.start)}"
    spent = ", ".join(f"{what} {_us(_inside(all_lanes, kind, window))}" for kind, what in _SPENT.items())
    body = [text(16, top + 14, title, "f-ink head"), text(WIDTH - _RIGHT, top + 14, spent, "f-soft", "end")]
    marks, at = [], top + 24
    first = at
    for event in _within(ran, window):
        left, right = x(event.start), x(event.stop)
        outside = event.where.layer != window.layer
        tip = f"{event.label}{_of(event)}: {_us(event.stop - event.start)}"
        fill = f"f-{hue.get(event.label, 'whole')}{' held' * outside}"
        marks.append(rect(left, at, right - left - 1, _ROW, fill, tip))
        marks += _label(event.label, left, right, at + _ROW - 5, "f-ink" if outside else "f-on head")
    at += _ROW + 4
    group = ""
    shown = {
        *program.rings,
        "HBM",
        "core",
        "links",
        "waits",
        *(lane.group for lane in all_lanes if lane.name != lane.group and _within(lane.events, window)),
    }
    for lane in all_lanes:
        events = _joined(_within(lane.events, window), _SEEN / scale)
        if lane.group not in shown and not events:
            continue
        high = _SLOT if lane.kind == "slot" else _ROW
        at += 5 if lane.group != group else 0
        body += _name(lane, lane.group != group, at, high)
        group = lane.group
        body.append(rect(_LEFT, at, plot, high, "f-track"))
        for event in events:
            marks += _drawn(lane, event, x(event.start), x(event.stop), x(event.end), at, high, hue)
        at += high + _GAP
    lines = [
        svg.line(x(s), first - 4, x(s), at, "s-soft dash")
        for s in (window.start, window.stop)
        if window.begin < s < window.end
    ]
    return [*body, *_axis(window, scale, first + _ROW, at), *marks, *lines], at + 34 - top


def _inside(all_lanes: Sequence[Lane], kind: str, window: Window) -> float:
    """Seconds of the layer in which lanes of a kind are busy."""
    return sum(
        max(0.0, min(event.stop, window.stop) - max(event.start, window.start))
        for lane in all_lanes
        if lane.kind == kind
        for event in lane.events
    )


def _within(events: Sequence[Event], window: Window) -> list[Event]:
    return [event for event in events if event.end > window.begin and event.start < window.end]


def _joined(events: Sequence[Event], near: float) -> list[Event]:
    """What is too short to be told apart becomes one; its label lists what it was."""
    merged: list[Event] = []
    for event in events:
        last = merged[-1] if merged else None
        short = last is not None and last.part == event.part and not (event.held or last.held)
        if (
            last is not None
            and short
            and event.start - last.stop < near
            and (event.label == last.label or event.stop - last.start < 4 * near)
        ):
            label = last.label if event.label in last.label.split(", ") else f"{last.label}, {event.label}"
            merged[-1] = evolve(last, stop=event.stop, label=label, bytes=last.bytes + event.bytes)
        else:
            merged.append(event)
    return merged


def _name(lane: Lane, leads: bool, at: float, high: float) -> Iterator[str]:
    """A group's name stands at its first lane, a slot's number at each."""
    if lane.kind != "slot":
        yield text(_LEFT - 8, at + high - 5, lane.name, "f-ink", "end")
        return
    if leads:
        label = lane.group if len(lane.group) <= 22 else lane.group[:21] + "…"
        yield text(_LEFT - 24 if lane.name != lane.group else _LEFT - 8, at + high - 1, label, "f-ink", "end")
    yield text(_LEFT - 8, at + high - 2, "" if lane.slot is None else str(lane.slot), "f-soft small", "end")


def _drawn(
    lane: Lane, event: Event, left: float, right: float, end: float, at: float, high: float, hue: dict[str, str]
) -> Iterator[str]:
    own = {"hbm": "f-hbm", "wait": "f-wait"}.get(lane.kind, f"f-{hue.get(event.part, 'whole')}")
    size = f", {event.bytes / 1e6:.3g} MB" if event.bytes else ""
    about = f", {event.about}" if event.about else ""
    scope = f"{event.where.scope}: " if event.where.scope else ""
    tip = f"{scope}{event.label}{_of(event)}{about}: {_us(event.stop - event.start)}{size}"
    if end > right:
        yield rect(right, at, end - right, high, f"{own} held", f"{tip}; lies there for {_us(event.end - event.stop)}")
    yield rect(left, at, right - left - (0.4 if right - left > 2 else 0), high, own, tip)
    if lane.kind == "slot":
        yield from _label(event.label, left, right, at + high - 2, "f-on small", 9)
    elif lane.kind != "hbm":
        yield from _label(event.label, left, right, at + high - 5, "f-on")


def _label(content: str, left: float, right: float, base: float, classes: str, size: float = svg.FONT) -> Iterator[str]:
    """In the middle of what is wide enough for it, without its place if need be."""
    for each in (content, content.rpartition(".")[2]):
        if right - left > wide(each, size) + 4:
            yield text((left + right) / 2, base, each, classes, "middle")
            return


def _axis(window: Window, scale: float, top: float, bottom: float) -> Iterator[str]:
    """Microseconds from the layer's start on."""
    apart = 90 / scale
    unit = 10 ** floor(log10(apart))
    each = next(unit * k for k in (1, 2, 5, 10) if unit * k >= apart)
    tick = -floor((window.start - window.begin) / each)
    while window.start + tick * each <= window.end:
        seconds = window.start + tick * each
        at = _LEFT + (seconds - window.begin) * scale
        yield svg.line(at, top, at, bottom + 2, "s-line")
        yield text(at, bottom + 14, f"{tick * each * 1e6:.4g} us", "f-soft", "middle")
        tick += 1


def _of(event: Event) -> str:
    return "" if event.where.layer is None else f", layer {event.where.layer}"


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} us"
