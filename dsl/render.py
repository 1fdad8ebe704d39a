"""Diagnostics for people and for programs. Nothing here raises, whatever the spans say."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, TextIO

from .diagnostics import Diagnostic, Label
from .records import frozen
from .source import Source, Span
from .text.columns import Shown, printable, show

# A longer line is cut to what surrounds the carets.
_WIDEST = 200
_KIND = re.compile(r"[a-z]+: ")


@frozen
class Style:
    """The codes that switch colours on and off; empty for plain text."""

    error: str = ""
    warning: str = ""
    quiet: str = ""
    bold: str = ""
    off: str = ""


PLAIN = Style()
COLOURED = Style(error="\x1b[1;31m", warning="\x1b[1;33m", quiet="\x1b[1;34m", bold="\x1b[1m", off="\x1b[0m")


def style_for(stream: TextIO) -> Style:
    """Colours only on a terminal, and not when `NO_COLOR` is set."""
    try:
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty()
    except ValueError:  # a closed stream
        plain = True
    return PLAIN if plain else COLOURED


def render(diagnostic: Diagnostic, style: Style = PLAIN) -> str:
    """The headline, each place with its line and carets, notes and helps; ends without a newline."""
    hue = {"warning": style.warning, "note": style.quiet}.get(diagnostic.severity, style.error)
    head = f"{hue}{diagnostic.severity}[{diagnostic.code}]{style.off}"
    lines = [f"{head}{style.bold}: {printable(diagnostic.message)}{style.off}"]
    snippets = _snippets(diagnostic)
    gutter = max([2, *(len(str(_ends(label.span)[-1])) for snippet in snippets for label in snippet)])
    for i, snippet in enumerate(snippets):
        lines += _snippet(snippet, "-->" if i == 0 else ":::", gutter, style, hue, diagnostic.primary)
    for kind, texts in (("note", diagnostic.notes), ("help", diagnostic.helps)):
        for text in texts:
            title = text if _KIND.match(text) else f"{kind}: {text}"
            first, *more = title.split("\n")
            lines.append(f"{' ' * gutter}{style.quiet}={style.off} {printable(first)}")
            lines += [" " * (gutter + 2) + printable(line) for line in more]
    return "\n".join(lines)


def render_all(diagnostics: Iterable[Diagnostic], style: Style = PLAIN) -> str:
    """All of them with an empty line after each, and how many faults there were; nothing for none."""
    given = list(diagnostics)
    if not given:
        return ""
    faults = any(d.severity != "note" for d in given)
    return "\n\n".join([*(render(d, style) for d in given), summary(given) if faults else ""]) + "\n" * faults


def summary(diagnostics: Iterable[Diagnostic]) -> str:
    """`2 errors, 1 warning`; `no errors, 1 note`."""
    severities = [d.severity for d in diagnostics]
    counts = [(severities.count(kind), kind) for kind in ("error", "warning", "note")]
    counted = [f"{n} {kind}{'s' * (n != 1)}" for n, kind in counts if n]
    return ", ".join(counted if "error" in severities or "warning" in severities else ["no errors", *counted])


def as_json(diagnostic: Diagnostic) -> dict[str, Any]:
    """For programs. Lines and columns count characters from 1; `end_column` is the first one after the place."""
    labels = [] if diagnostic.primary is None else [diagnostic.primary]
    spans = []
    for label in (*labels, *diagnostic.others):
        source, start, end = _bounds(label.span)
        (line, column), (end_line, end_column) = source.position(start), source.position(end)
        spans.append(
            {
                "file": source.name,
                "line": line,
                "column": column,
                "end_line": end_line,
                "end_column": end_column,
                "label": label.text,
                "primary": label is diagnostic.primary,
            }
        )
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "message": diagnostic.message,
        "spans": spans,
        "notes": list(diagnostic.notes),
        "helps": list(diagnostic.helps),
    }


def _bounds(span: Span) -> tuple[Source, int, int]:
    """Source, start and end, moved into the text if they are not."""
    size = len(span.source.text)
    start = min(max(span.start, 0), size)
    return span.source, start, min(max(span.end, start), size)


def _ends(span: Span) -> tuple[int, int]:
    """The first and the last line of a span."""
    source, start, end = _bounds(span)
    return source.position(start)[0], source.position(max(start, end - 1))[0]


def _snippets(diagnostic: Diagnostic) -> list[list[Label]]:
    """Labels by line: the primary's first, then the others in the order given."""
    labels = (*([] if diagnostic.primary is None else [diagnostic.primary]), *diagnostic.others)
    snippets: dict[tuple[int, int, int], list[Label]] = {}
    for label in labels:
        snippets.setdefault((id(label.span.source), *_ends(label.span)), []).append(label)
    return [sorted(on_line, key=lambda label: label.span.start) for on_line in snippets.values()]


def _snippet(labels: list[Label], arrow: str, gutter: int, style: Style, hue: str, primary: Label | None) -> list[str]:
    """Where it is, the line or lines, and carets under each label."""
    chief = next((label for label in labels if label is primary), labels[0])
    source, start, _ = _bounds(chief.span)
    first, last = _ends(chief.span)
    line, column = source.position(start)
    at = f"{printable(source.name)}:{line}:{column}"
    lines = [f"{' ' * (gutter - 1)}{style.quiet}{arrow}{style.off} {at}"]
    if not source.text:
        return lines
    blank = f"{' ' * gutter}{style.quiet}|{style.off}"
    for number in dict.fromkeys((first, last)):
        if number == last > first + 1:
            lines.append(f"{' ' * gutter}{style.quiet}:{style.off}")
        shown = show(source.line(number))
        text, shift = shown.window(_columns(shown, source, number, chief.span)[0] - 40, _WIDEST)
        lines.append(f"{style.quiet}{number:>{gutter}}|{style.off} {text}".rstrip())
        for label in labels:
            left, right = (min(max(at - shift, 0), _WIDEST) for at in _columns(shown, source, number, label.span))
            sign, colour = ("^", hue) if label is primary else ("-", style.quiet)
            caption = printable(label.text) if number == last else ""
            marks = f"{sign * max(right - left, 1)} {caption}".rstrip()
            lines.append(f"{blank} {' ' * left}{colour}{marks}{style.off}".rstrip())
    return lines


def _columns(shown: Shown, source: Source, number: int, span: Span) -> tuple[int, int]:
    """Where the part of a span that lies on a line starts and ends, in columns of the printed line."""
    _, start, end = _bounds(span)
    base, size = source.line_starts[number - 1], len(shown.starts) - 1
    left = min(max(start - base, 0), size)
    right = min(max(end - base, left), size)
    if start < base:  # goes on from an earlier line: not under the indentation
        text = source.line(number)
        left = min(len(text) - len(text.lstrip()), right)
    return shown.starts[left], shown.starts[right]
