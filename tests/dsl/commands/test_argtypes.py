"""Values on the command line that are none."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from mks.dsl.commands.argtypes import number


@pytest.mark.parametrize(("text", "why"), [("abc", "'abc' is no number"), ("", "is no number"), ("nan", "must be from"),
                                           ("0", "must be from 1 to 2")])  # fmt: skip
def test_numbers(text: str, why: str) -> None:
    """What is wrong is said in words, not by the name of a function."""
    with pytest.raises(ArgumentTypeError, match=why):
        number(1, 2)(text)


def test_a_number() -> None:
    """Both ends belong to it."""
    assert [number(1, 2)(text) for text in ("1", "1.5", "2")] == [1, 1.5, 2]
