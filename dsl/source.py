"""Source text and places in it."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property

from attrs import field

from .records import define, frozen


@define(eq=False, slots=False)
class Source:
    """One file's text; `name` is what diagnostics call it."""

    name: str
    text: str = field(repr=False)

    @cached_property
    def line_starts(self) -> tuple[int, ...]:
        """Offset of each line's first character."""
        starts, at = [0], self.text.find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = self.text.find("\n", at + 1)
        return tuple(starts)

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset in characters, both counted from 1."""
        offset = min(max(offset, 0), len(self.text))
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of a line (from 1), without its end."""
        starts = self.line_starts
        end = starts[number] if number < len(starts) else len(self.text)
        return self.text[starts[number - 1] : end].rstrip("\r\n")


@frozen
class Span:
    """The characters `start .. end` of a source; `end` is exclusive."""

    source: Source = field(repr=False)
    start: int
    end: int

    def until(self, other: Span) -> Span:
        """From this span's start to the other's end."""
        return Span(self.source, self.start, max(self.end, other.end))

    @property
    def text(self) -> str:
        """What stands there."""
        return self.source.text[self.start : self.end]
