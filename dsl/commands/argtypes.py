"""Kinds of values on the command line; what is none is told by `argparse`."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def ids(text: str) -> tuple[int, ...]:
    """Token ids between commas."""
    return tuple(natural(part) for part in text.split(","))


def natural(text: str) -> int:
    """A whole number, 0 or more."""
    if not text.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    if len(text.strip()) > 18:
        raise argparse.ArgumentTypeError("must have at most 18 digits")
    return int(text)


def count(text: str) -> int:
    """A whole number, 1 or more."""
    value = natural(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def port(text: str) -> int:
    """A port."""
    value = natural(text)
    if value > 65535:
        raise argparse.ArgumentTypeError("must be at most 65535")
    return value


def number(low: float, high: float) -> Callable[[str], float]:
    """A number from `low` to `high`."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"must be from {low:g} to {high:g}")
        return value

    return parse
