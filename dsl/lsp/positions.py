"""Places as editors count them: lines and columns from 0, columns in units of an encoding."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache

from ..records import frozen

UTF8, UTF16, UTF32 = "utf-8", "utf-16", "utf-32"
_END = re.compile(r"\r\n|\n|\r")


@frozen
class Lines:
    """A text's lines; those of an editor end with `\\n`, `\\r\\n` or `\\r`, and with nothing else."""

    text: str
    unit: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of a character; what is outside the text, or inside a line's end, is moved to it."""
        offset = min(max(offset, 0), len(self.text))
        line = bisect_right(self.starts, offset) - 1
        start = self.starts[line]
        return line, width(self.text[start : min(offset, self.ends[line])], self.unit)

    def offset(self, line: int, column: int) -> int:
        """The character at a place; columns behind a line's end mean its end, those inside a character its start."""
        if line >= len(self.starts):
            return len(self.text)
        at, end = self.starts[max(line, 0)], self.ends[max(line, 0)]
        if self.text[at:end].isascii():
            return min(at + max(column, 0), end)
        while at < end and (column := column - width(self.text[at], self.unit)) >= 0:
            at += 1
        return at


def width(text: str, unit: str) -> int:
    """How many units a text takes."""
    if unit == UTF32 or text.isascii():
        return len(text)
    if unit == UTF8:
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text) + sum(char > "\uffff" for char in text)


@lru_cache(maxsize=32)
def lines(text: str, unit: str) -> Lines:
    """The lines of a text."""
    ends = [match.span() for match in _END.finditer(text)]
    return Lines(text, unit, (0, *(end for _, end in ends)), (*(start for start, _ in ends), len(text)))
