"""Elements of SVG as strings, and the colours, which follow the reader's preference for light or dark."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

from attrs import frozen

FONT = 11
_FAMILY = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif"
_EM = 0.57  # a letter's width, on average and rather too wide

# Parts of a model, told apart by hue in light and in dark.
_PARTS = (
    ("#2f6fb5", "#5b9de0"),
    ("#187a5e", "#3fb893"),
    ("#9a6512", "#d9a040"),
    ("#8a4fa8", "#b884d6"),
    ("#4c7d1f", "#86b84f"),
    ("#b34a78", "#dd7fa8"),
    ("#2c8a9c", "#55b7ca"),
    ("#7d6a4a", "#b09d7c"),
)
PARTS = len(_PARTS)
_COLOURS = {
    "paper": ("#ffffff", "#16181b"),
    "ink": ("#1f2328", "#e8e6e3"),
    "soft": ("#656d76", "#9aa0a8"),
    "track": ("#f3f4f6", "#1f2226"),
    "line": ("#dfe2e6", "#33373d"),
    "hbm": ("#57606a", "#9aa4af"),
    "wait": ("#cf2f3a", "#ff6b6b"),
    "link": ("#9a6700", "#e3b341"),
    "whole": ("#6b7684", "#8c97a5"),
    "on": ("#ffffff", "#0f1113"),
    **{f"part{i}": pair for i, pair in enumerate(_PARTS)},
}


@frozen
class Drawing:
    """`body` is SVG within `0 .. width`, `0 .. height`; `title` and `about` say in words what it shows."""

    name: str
    width: float
    height: float
    title: str
    about: str
    body: str


def style() -> str:
    """Classes `f-NAME` fill and `s-NAME` stroke."""
    lines = [
        f".mks text{{font:{FONT}px {_FAMILY};font-variant-numeric:tabular-nums}}",
        ".mks .big{font-size:15px;font-weight:600}",
        ".mks .head{font-weight:600}",
        ".mks .small{font-size:9px}",
        ".mks .pale{opacity:.22}",
        ".mks .held{opacity:.38}",
        ".mks .dash{stroke-dasharray:5 3}",
    ]
    halo = ".mks .halo{{paint-order:stroke;stroke:{};stroke-width:3px;stroke-linejoin:round}}"
    light, dark = ([*_classes(i), halo.format(_COLOURS["paper"][i])] for i in (0, 1))
    return "\n".join([*lines, *light, "@media (prefers-color-scheme:dark){", *dark, "}"])


def _classes(dark: int) -> list[str]:
    return [
        f".mks .f-{name}{{fill:{pair[dark]}}}.mks .s-{name}{{stroke:{pair[dark]}}}" for name, pair in _COLOURS.items()
    ]


def document(drawings: Iterable[Drawing]) -> str:
    """A file of its own, drawings below one another."""
    parts = list(drawings)
    width, height = max(d.width for d in parts), sum(d.height for d in parts)
    title, about = "; ".join(d.title for d in parts), " ".join(d.about for d in parts)
    body, at = [rect(0, 0, width, height, "f-paper")], 0.0
    for drawing in parts:
        body.append(f'<g transform="translate(0 {number(at)})">{drawing.body}</g>')
        at += drawing.height
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{_root("mks", width, height, title, about, body, style())}\n'


def inline(drawing: Drawing) -> str:
    """An element for a page that has the style already."""
    return _root(drawing.name, drawing.width, drawing.height, drawing.title, drawing.about, [drawing.body], "")


def _root(name: str, width: float, height: float, title: str, about: str, body: list[str], styled: str) -> str:
    wide, high = number(width), number(height)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mks" role="img" viewBox="0 0 {wide} {high}" '
        f'width="{wide}" height="{high}" aria-labelledby="{name}-title {name}-about">'
    )
    labels = f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-about">{escape(about)}</desc>'
    return "\n".join([head, labels, f"<style>{styled}</style>" if styled else "", *body, "</svg>"])


def rect(x: float, y: float, width: float, height: float, classes: str, tip: str = "") -> str:
    """A rectangle; `tip` is shown to who points at it."""
    head = (
        f'<rect x="{number(x)}" y="{number(y)}" width="{number(max(width, 0.2))}" '
        f'height="{number(max(height, 0.2))}" class="{classes}"'
    )
    return f"{head}><title>{escape(tip)}</title></rect>" if tip else f"{head}/>"


def line(x1: float, y1: float, x2: float, y2: float, classes: str, width: float = 1) -> str:
    """A straight line."""
    return (
        f'<line x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}" class="{classes}" '
        f'stroke-width="{number(width)}"/>'
    )


def text(x: float, y: float, content: str, classes: str = "f-ink", anchor: str = "start") -> str:
    """A line of text, on its base line."""
    return f'<text x="{number(x)}" y="{number(y)}" class="{classes}" text-anchor="{anchor}">{escape(content)}</text>'


def wide(content: str, size: float = FONT) -> float:
    """How wide a text is, at most."""
    return len(content) * _EM * size


def number(value: float) -> str:
    """`12`, `12.5`: at most two places."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"
