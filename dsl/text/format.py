"""The one layout of a definition: `mks fmt`.

The words and comments of a file are printed as they are and in their order; only the spaces, line ends and empty
lines between them are chosen here. So the tree stays the same, and every comment stays beside its neighbours.
"""

from __future__ import annotations

from ..diagnostics import Diagnostic
from ..source import Source
from .align import Line, align, line, pad
from .columns import show
from .layout import Block, Entry, layout
from .parse import parse


def format_source(source: Source) -> str | list[Diagnostic]:
    """The text in canonical layout, its line ends as the first one was; or the errors of a text that has some."""
    _, found = parse(source)
    if found:
        return found
    lines = _body(layout(source), "file", 0)
    first = source.text.find("\n")
    end = "\r\n" if first > 0 and source.text[first - 1] == "\r" else "\n"
    return end.join(lines) + end


def _body(entries: list[Entry], place: str, indent: int) -> list[str]:
    """The lines of a block's inside."""
    lines: list[str] = []
    beside: list[tuple[int, str]] = []
    for section in _sections(entries, place, indent):
        for entry, made in section:
            if entry.blank and lines:
                _comments(lines, beside)
                lines.append("")
            if made is None:
                _comments(lines, beside)
                lines.append(" " * indent + (entry.comment or ""))
                continue
            if made.rows or entry.comment is None or entry.block is not None:
                _comments(lines, beside)
            lines += _rows(made, indent, place)
            if entry.block is not None:
                lines[-1] += " {"
                lines += _block(entry.block, lines, indent)
            elif entry.comment is not None:
                beside.append((len(lines) - 1, entry.comment))
    _comments(lines, beside)
    return lines


def _sections(entries: list[Entry], place: str, indent: int) -> list[list[tuple[Entry, Line | None]]]:
    """Runs of statements that share columns: of one kind, one after the other, without a block among them."""
    sections: list[list[tuple[Entry, Line | None]]] = []
    for entry in entries:
        made = line(entry, place, indent) if entry.words else None
        before = sections[-1][-1] if sections else None
        shares = (
            made is not None
            and before is not None
            and before[1] is not None
            and before[1].kind == made.kind
            and not (entry.blank or entry.block or before[0].block)
        )
        if shares:
            sections[-1].append((entry, made))
        else:
            sections.append([(entry, made)])
    for section in sections:
        align([made for _, made in section if made is not None])
    return sections


def _rows(made: Line, indent: int, place: str) -> list[str]:
    """A statement's lines: the first with its columns, then those that continue it."""
    deeper = indent + (made.starts["COLON"] + 2 if place == "weights" and "COLON" in made.starts else 4)
    rows = [" " * (indent if row[0] in ")]}" else deeper) + row for row in made.rows]
    return [" " * indent + made.text, *rows]


def _block(block: Block, lines: list[str], indent: int) -> list[str]:
    """What follows a block's opening line; the comments beside the braces are kept there."""
    if block.opening is not None:
        lines[-1] += f"  {block.opening}"
    closing = "" if block.closing is None else f"  {block.closing}"
    return [*_body(block.entries, block.place, indent + 2), " " * indent + "}" + closing]


def _comments(lines: list[str], beside: list[tuple[int, str]]) -> None:
    """Put the comments of consecutive lines into one column."""
    if beside:
        column = max(show(lines[i]).width for i, _ in beside) + 2
        for i, text in beside:
            lines[i] = pad(lines[i], column) + text
        beside.clear()
