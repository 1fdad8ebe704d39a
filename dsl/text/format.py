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
    _, diagnostics = parse(source)
    if diagnostics:
        return diagnostics
    lines = _body(layout(source), "file", 0)
    first = source.text.find("\n")
    end = "\r\n" if first > 0 and source.text[first - 1] == "\r" else "\n"
    return end.join(lines) + end


def _body(entries: list[Entry], context: str, indent: int) -> list[str]:
    """The lines of a block's inside."""
    lines: list[str] = []
    beside: list[tuple[int, str]] = []
    for section in _sections(entries, context, indent):
        for entry, row in section:
            if entry.blank and lines:
                _comments(lines, beside)
                lines.append("")
            if row is None:
                _comments(lines, beside)
                lines.append(" " * indent + (entry.comment or ""))
                continue
            if row.rows or entry.comment is None or entry.block is not None:
                _comments(lines, beside)
            lines += _rows(row, indent, context)
            if entry.block is not None:
                lines[-1] += " {"
                lines += _block(entry.block, lines, indent)
            elif entry.comment is not None:
                beside.append((len(lines) - 1, entry.comment))
    _comments(lines, beside)
    return lines


def _sections(entries: list[Entry], context: str, indent: int) -> list[list[tuple[Entry, Line | None]]]:
    """Runs of statements that share columns: of one kind, one after the other, without a block among them."""
    sections: list[list[tuple[Entry, Line | None]]] = []
    for entry in entries:
        row = line(entry, context, indent) if entry.words else None
        before = sections[-1][-1] if sections else None
        shares = (
            row is not None
            and before is not None
            and before[1] is not None
            and before[1].kind == row.kind
            and not (entry.blank or entry.block or before[0].block)
        )
        if shares:
            sections[-1].append((entry, row))
        else:
            sections.append([(entry, row)])
    for section in sections:
        align([row for _, row in section if row is not None])
    return sections


def _rows(laid_out: Line, indent: int, context: str) -> list[str]:
    """A statement's lines: the first with its columns, then those that continue it."""
    deeper = indent + (laid_out.starts["COLON"] + 2 if context == "weights" and "COLON" in laid_out.starts else 4)
    rows = [" " * (indent if row[0] in ")]}" else deeper) + row for row in laid_out.rows]
    return [" " * indent + laid_out.text, *rows]


def _block(block: Block, lines: list[str], indent: int) -> list[str]:
    """What follows a block's opening line; the comments beside the braces are kept there."""
    if block.opening is not None:
        lines[-1] += f"  {block.opening}"
    closing = "" if block.closing is None else f"  {block.closing}"
    return [*_body(block.entries, block.context, indent + 2), " " * indent + "}" + closing]


def _comments(lines: list[str], beside: list[tuple[int, str]]) -> None:
    """Put the comments of consecutive lines into one column."""
    if beside:
        column = max(show(lines[i]).width for i, _ in beside) + 2
        for i, text in beside:
            lines[i] = pad(lines[i], column) + text
        beside.clear()
