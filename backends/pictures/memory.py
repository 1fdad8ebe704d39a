"""VMEM over the step: bands of what lies there, the limit, the peak."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from ...dsl.program.analysis.memory import Bill, Line, bill, mib
from ..timeline.summary import Prediction
from . import svg
from .bands import Band, bands
from .svg import Drawing, rect, text
from .windows import Window, columns, hues, scope_events

WIDTH = 1240.0
_LEFT, _RIGHT, _TOP, _HIGH = 60.0, 340.0, 100.0, 460.0
_COLUMNS = "across, the step in brief, each column to its own scale of time"
_SHARE = 0.3  # of the limit: a peak below it has a scale of its own
_APART, _NARROW, _LETTERS = 6.0, 70.0, 36


def memory(prediction: Prediction) -> Drawing:
    """Across: the step in brief, each column to a scale of its own. Up: MiB."""
    program = prediction.program
    counted = bill(program)
    memory_bands, hue = bands(prediction, counted), hues(program)
    up = _HIGH / _most(counted)
    base = _TOP + _HIGH
    head = f"VMEM: {program.schedule.name} of {program.schedule.model.name}, {program.of.words}"
    where = f" in {counted.peak}" if counted.peak else ""
    has = f"{mib(counted.limit)} that a {program.schedule.target.name} has"
    total = f"{mib(counted.total)} at the peak{where}, of {has}"

    body = [text(16, 26, head, "f-ink big"), text(16, 43, f"{total}; {_COLUMNS}", "f-soft")]
    body += _legend()
    shown = _laid_out(columns(prediction))
    ran = scope_events(prediction)
    for window, left, right in shown:
        body += _column(window, left, right)
        at = base
        for band in memory_bands:
            body += _band(band, window, left, right, at, up, f"f-{hue.get(band.part, 'whole')}")
            at -= band.bytes * up
        for event in ran:
            if event.start < window.end and event.stop > window.begin:
                x = [
                    left
                    + (min(max(s, window.begin), window.end) - window.begin)
                    / (window.end - window.begin)
                    * (right - left)
                    for s in (event.start, event.stop)
                ]
                body += _scope_box(event.label, x[0], x[1], hue, _room(counted, event.label), at, up)
    body += _scale(counted, up, base)
    body += _peak(counted, up, base)
    body += _names(memory_bands, counted, up, base, hue)
    about = (
        f"Each buffer in VMEM as a band over the step, grouped by the part that it is for: pale where it is "
        f"reserved, strong where it is in use. {total}."
    )
    return Drawing("memory", WIDTH, base + 40, head, about, "\n".join(body))


def _most(counted: Bill) -> float:
    """Bytes up to where the scale reaches: the limit and somewhat more, or less where that would dwarf all bands."""
    return 1.06 * max(counted.limit, counted.total) if counted.total > _SHARE * counted.limit else 1.4 * counted.total


def _legend() -> list[str]:
    at = WIDTH - 18
    items = []
    for label, classes in (("reserved", "f-whole pale"), ("in use", "f-whole")):
        at -= svg.wide(label)
        items += [text(at, 43, label, "f-soft"), rect(at - 16, 34, 11, 11, classes)]
        at -= 30
    return items


def _laid_out(shown: Sequence[Window]) -> list[tuple[Window, float, float]]:
    """Where each column lies: the longer it lasts the wider, and wide enough to be read."""
    room = WIDTH - _LEFT - _RIGHT - _APART * (len(shown) - 1)
    parts = [sqrt(w.stop - w.start) for w in shown]
    spare = max(0.0, room - _NARROW * len(shown))
    boxes, at = [], _LEFT
    for window, part in zip(shown, parts, strict=True):
        width = _NARROW + spare * part / sum(parts)
        boxes.append((window, at, at + width))
        at += width + _APART
    return boxes


def _column(window: Window, left: float, right: float) -> list[str]:
    middle, base = (left + right) / 2, _TOP + _HIGH
    title = f"x {window.runs}" if window.layer is not None else window.name
    return [
        rect(left, _TOP, right - left, _HIGH, "f-track"),
        text(middle, _TOP - 26, title, "f-ink head", "middle"),
        text(middle, base + 32, f"{(window.stop - window.start) * 1e6:.4g} us", "f-soft", "middle"),
    ]


def _band(band: Band, window: Window, left: float, right: float, base: float, up: float, fill: str) -> list[str]:
    high = band.bytes * up
    gap = 1.0 if high > 3 else 0.0
    scale = (right - left) / (window.end - window.begin)
    tip = f"{band.part or 'the whole step'}: {band.name}, {mib(band.bytes)}"
    shapes = [rect(left, base - high, right - left, high - gap, f"{fill} pale", f"{tip}, reserved")]
    for start, stop in band.used:
        start, stop = max(start, window.begin), min(stop, window.end)
        if stop > start:
            x = left + (start - window.begin) * scale
            shapes.append(rect(x, base - high, (stop - start) * scale, high - gap, fill, tip))
    return shapes


def _room(counted: Bill, scope: str) -> Line | None:
    """What ops of a scope take while they run: the largest."""
    return next((line for line in counted.passing if line.place == scope), None)


def _scope_box(
    scope: str, left: float, right: float, hue: dict[str, str], room: Line | None, base: float, up: float
) -> list[str]:
    """A part's name above its time, and its ops' room on top of all bands."""
    fill = f"f-{hue.get(scope, 'whole')}"
    shapes = [rect(left, _TOP - 16, right - left - 1, 14, fill, scope)]
    if right - left > svg.wide(scope):
        shapes.append(text((left + right) / 2, _TOP - 5, scope, "f-on", "middle"))
    if room is not None:
        high = max(1.0, room.bytes * up)
        shapes.append(rect(left, base - high, right - left, high, fill, f"{scope}: {room.name}, {mib(room.bytes)}"))
    return shapes


def _scale(counted: Bill, up: float, base: float) -> list[str]:
    most = int(_most(counted))
    each = next(n for n in (1, 2, 4, 8, 16, 32, 64, 128) if most / (n << 20) <= 9) << 20
    shapes = []
    for size in range(0, most + 1, each):
        at = base - size * up
        shapes.append(svg.line(_LEFT - 5, at, _LEFT, at, "s-soft"))
        shapes.append(text(_LEFT - 9, at + 4, f"{size >> 20}", "f-soft", "end"))
    return [*shapes, text(_LEFT - 9, _TOP - 12, "MiB", "f-soft", "end")]


def _peak(counted: Bill, up: float, base: float) -> list[str]:
    """The limit and the peak as lines with their values: the one to the right, the other to the left."""
    right = WIDTH - _RIGHT
    beyond = counted.limit > _most(counted)
    limit, peak = _TOP + 18 if beyond else base - counted.limit * up, base - counted.total * up
    label = f"limit {mib(counted.limit)}{', far above' * beyond}"
    where = f" in {counted.peak}" if counted.peak else ""
    return [
        svg.line(_LEFT, limit, right + 6, limit, f"s-wait{' dash' * beyond}", 1.5),
        svg.line(_LEFT, peak, right + 6, peak, "s-ink dash", 1.5),
        text(right - 4, limit - 5, label, "f-wait head halo", "end"),
        text(_LEFT + 5, peak - 5, f"peak {mib(counted.total)}{where}", "f-ink head halo"),
    ]


def _names(shown: Sequence[Band], counted: Bill, up: float, base: float, hue: dict[str, str]) -> list[str]:
    """Each band's name beside it, apart from one another; a line leads from the band to its name."""
    rooms = counted.passing[:1]
    lines: list[tuple[float, str, str, int]] = []
    at = base
    for band in shown:
        part = "" if not band.part or band.name.split(" ")[-1].startswith(f"{band.part}.") else f"{band.part}: "
        lines.append((at - band.bytes * up / 2, part + band.name, hue.get(band.part, "whole"), band.bytes))
        at -= band.bytes * up
    for room in rooms:
        lines.append((at - room.bytes * up / 2, f"{room.place}: {room.name}", hue.get(room.place, "whole"), room.bytes))
    apart = min(16.0, (_HIGH + 60) / max(1, len(lines)))
    wanted = [y for y, *_ in lines]
    placed: list[float] = []
    for y in wanted:
        placed.append(min(y, placed[-1] - apart) if placed else min(y, base - 4))
    if placed and placed[-1] < _TOP - 20:
        # Too high: press down from the top.
        placed[-1] = _TOP - 20
        for i in range(len(placed) - 2, -1, -1):
            placed[i] = max(placed[i], placed[i + 1] + apart)
    right, out = WIDTH - _RIGHT, []
    for (y, label, shade, size), to in zip(lines, placed, strict=True):
        out.append(svg.line(right, y, right + 22, to, "s-soft"))
        out.append(rect(right + 26, to - 4.5, 9, 9, f"f-{shade}"))
        out.append(text(right + 40, to + 4, label if len(label) <= _LETTERS else label[: _LETTERS - 1] + "…"))
        out.append(text(WIDTH - 18, to + 4, mib(size) if size >= 10486 else f"{size / 1024:.1f} KiB", "f-soft", "end"))
    return out
