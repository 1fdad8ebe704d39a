"""From bytes to the text that a client may already see."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class Utf8Stream:
    """Decodes bytes as they come, holding back a character that is not complete yet.

    All parts together are what decoding all bytes at once gives, for every way of cutting them.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, data: bytes) -> str:
        """The characters that `data` completes."""
        return self._decoder.decode(data)

    def flush(self) -> str:
        """What is left at the end: nothing, or U+FFFD for a character that was never completed."""
        return self._decoder.decode(b"", final=True)


class StopMatcher:
    """Ends a text where the first of several stop strings is complete.

    Of those complete at the same character the longest counts. Text is held back only while it may still become one.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if not all(stops):
            raise ValueError("a stop string is empty")
        self._stops = tuple(dict.fromkeys(stops))
        self._borders = tuple(_borders(stop) for stop in self._stops)
        # For each stop, how many of its characters the text ends with.
        self._lengths = [0] * len(self._stops)
        self._pending = ""

    def push(self, text: str, ends: bool = True) -> tuple[str, str | None]:
        """The text that is now certain, and the stop string that ended it, if one did.

        The stop string is not part of the text. After a match nothing may be pushed. Without `ends`, stop strings that
        are complete with this text do not end it, and what only begins in it may still become one.
        """
        pending = self._pending + text
        for at, char in enumerate(text, start=len(self._pending) + 1):
            stop = self._advance(char)
            if stop is not None and ends:
                self._pending = ""
                return pending[: at - len(stop)], stop
        keep = max(self._lengths, default=0)
        self._pending = pending[len(pending) - keep :]
        return pending[: len(pending) - keep], None

    def flush(self) -> str:
        """The text held back, at the end of all text."""
        pending, self._pending = self._pending, ""
        self._lengths = [0] * len(self._stops)
        return pending

    def _advance(self, char: str) -> str | None:
        longest: str | None = None
        for number, (stop, borders) in enumerate(zip(self._stops, self._borders, strict=True)):
            length = self._lengths[number]
            while length and stop[length] != char:
                length = borders[length - 1]
            if stop[length] == char:
                length += 1
            if length == len(stop):
                longest = stop if longest is None or len(stop) > len(longest) else longest
                length = borders[length - 1]
            self._lengths[number] = length
        return longest


def _borders(stop: str) -> list[int]:
    """For each prefix, the length of its longest proper prefix that is also its suffix (Knuth, Morris, Pratt)."""
    borders = [0] * len(stop)
    length = 0
    for at in range(1, len(stop)):
        while length and stop[at] != stop[length]:
            length = borders[length - 1]
        if stop[at] == stop[length]:
            length += 1
        borders[at] = length
    return borders
