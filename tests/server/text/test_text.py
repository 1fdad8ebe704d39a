"""Incremental text: every way of cutting gives what the whole gives."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mks.server.text.stream import StopMatcher, Utf8Stream

SMALL = st.text(alphabet="abé", max_size=20)
STOPS = st.lists(st.text(alphabet="abé", min_size=1, max_size=4), max_size=4)


def cut[T: (str, bytes)](whole: T, places: list[int]) -> list[T]:
    """`whole` in parts, cut at `places`."""
    edges = [0, *sorted(place % (len(whole) + 1) for place in places), len(whole)]
    return [whole[start:stop] for start, stop in itertools.pairwise(edges)]


def stopped(text: str, stops: list[str]) -> tuple[str, str | None]:
    """What a text becomes: cut where the first stop string is complete, the longest of those complete there."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(st.binary(max_size=40) | st.text(max_size=20).map(str.encode), st.lists(st.integers(0, 1000), max_size=8))
def test_bytes_decode_the_same_however_they_are_cut(data: bytes, places: list[int]) -> None:
    """Any bytes, cut anywhere, decode to what they decode to at once."""
    stream = Utf8Stream()

    parts = [stream.push(part) for part in cut(data, places)]
    assert "".join(parts) + stream.flush() == data.decode("utf-8", "replace")


@given(st.text(max_size=20))
def test_no_part_of_a_character_is_shown(text: str) -> None:
    """Byte by byte, valid text never shows a replacement character that it does not hold."""
    stream = Utf8Stream()

    shown = ""
    for byte in text.encode():
        shown += stream.push(bytes([byte]))
        assert text.startswith(shown)
    assert shown == text
    assert stream.flush() == ""


def test_a_cut_character_is_flushed_as_one_replacement() -> None:
    """A character that never completes is shown once, at the end."""
    stream = Utf8Stream()

    assert stream.push("é👍".encode()[:-1]) == "é"
    assert stream.flush() == "\ufffd"


@given(SMALL, STOPS, st.lists(st.integers(0, 1000), max_size=8))
def test_stops_cut_the_same_however_the_text_is_cut(text: str, stops: list[str], places: list[int]) -> None:
    """Text, cut anywhere, ends at the same stop string and before the same character."""
    matcher = StopMatcher(stops)
    shown, found = "", None
    for part in cut(text, places):
        certain, found = matcher.push(part)
        shown += certain
        if found is not None:
            break
    else:
        shown += matcher.flush()

    assert (shown, found) == stopped(text, stops)


@given(SMALL, STOPS)
def test_only_what_may_become_a_stop_is_held(text: str, stops: list[str]) -> None:
    """What is held back is the longest end of the text that begins a stop string, and no more."""
    matcher = StopMatcher(stops)
    certain, found = matcher.push(text)

    if found is None:
        ends = [text[start:] for start in range(len(text) + 1)]
        held = next(end for end in ends if end == "" or any(stop.startswith(end) for stop in stops))
        assert certain + held == text
        assert matcher.flush() == held


def test_an_empty_stop_string_is_refused() -> None:
    """It would match everywhere."""
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(["a", ""])
