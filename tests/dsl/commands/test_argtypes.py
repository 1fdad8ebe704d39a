"""Values on the command line that are none."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from mks.dsl.commands.argtypes import count, natural, number


@pytest.mark.parametrize(
    ("text", "why"),
    [("abc", "'abc' is not a number"), ("", "is not a number"), ("nan", "must be from"), ("0", "must be from 1 to 2")],
)
def test_numbers(text: str, why: str) -> None:
    """What is wrong is said in words, not by the name of a function."""
    with pytest.raises(ArgumentTypeError, match=why):
        number(1, 2)(text)


def test_a_number() -> None:
    """Both ends belong to it."""
    assert [number(1, 2)(text) for text in ("1", "1.5", "2")] == [1, 1.5, 2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("-1", "not a whole number"),
        ("1e3", "not a whole number"),
        ("", "not a whole number"),
        ("9" * 19, "at most 18 digits"),
        ("9" * 5000, "at most 18 digits"),
    ],
)
def test_natural(text: str, said: str) -> None:
    """What is not a whole number is told apart from what is too large a one."""
    with pytest.raises(ArgumentTypeError, match=said):
        natural(text)
    assert natural("9" * 18) == 10**18 - 1


@pytest.mark.parametrize("text", ["0", "-1", "00", "1.5", "", "two"])
def test_count(text: str) -> None:
    """Whatever is wrong, it is said what is right: nothing less than 1."""
    with pytest.raises(ArgumentTypeError, match=f"'{text}' is not a whole number of 1 or more"):
        count(text)
    assert count(" 1") == 1
