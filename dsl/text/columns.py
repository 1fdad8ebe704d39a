"""How many terminal columns text takes: tabs, wide characters, combining marks, emoji."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from ..records import frozen

TAB = 4


@frozen
class Shown:
    """A line as printed: for each character what stands for it, and the column where it (and the end) starts."""

    cells: Sequence[str]
    starts: Sequence[int]

    @property
    def text(self) -> str:
        """The whole line."""
        return "".join(self.cells)

    @property
    def width(self) -> int:
        """Columns of the whole line."""
        return self.starts[-1]

    def window(self, begin: int, widest: int) -> tuple[str, int]:
        """At most `widest` columns from about `begin` on, marked where cut; and the column that is now the first."""
        if self.width <= widest:
            return self.text, 0
        first = bisect_left(self.starts, max(0, min(begin, self.width - widest)))
        last = max(first, bisect_left(self.starts, self.starts[first] + widest) - 1)
        before, after = "…" if first else "", "…" if last < len(self.cells) else ""
        return before + "".join(self.cells[first:last]) + after, self.starts[first] - len(before)


def show(line: str) -> Shown:
    """Tabs become spaces; what a terminal would obey or cannot print becomes a visible sign."""
    if line.isascii() and line.isprintable():
        return Shown(line, range(len(line) + 1))
    out: list[str] = []
    starts, at, before = [], 0, ""
    for char in line:
        starts.append(at)
        if char == "\t":
            printed, wide = " " * (TAB - at % TAB), TAB - at % TAB
        else:
            printed, wide = _printed(char), _width(char, before)
        out.append(printed)
        at, before = at + wide, char
    return Shown(out, (*starts, at))


def printable(text: str) -> str:
    """Text that is safe to print on one line."""
    return text if text.isascii() and text.isprintable() else "".join(_printed(c) for c in text)


_JOINERS = "\u200d\ufe0e\ufe0f"


def _printed(char: str) -> str:
    if char.isprintable() or char in _JOINERS:
        return char
    if char == "\t":
        return " "
    if char < " ":
        return chr(0x2400 + ord(char))
    return "\u2421" if char == "\x7f" else "\ufffd"


def _width(char: str, before: str) -> int:
    if char.isascii():
        return 1
    from unicodedata import category, combining, east_asian_width

    if char == "\ufe0f":  # asks for the colourful form of the character before, which is two columns wide
        return 1 if before and _width(before, "") == 1 and not before.isascii() else 0
    joined = before == "\u200d" or "\U0001f3fb" <= char <= "\U0001f3ff"
    if joined or char in _JOINERS or combining(char) or category(char) in ("Mn", "Me"):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1
