"""Kinds of values on the command line; what is none is told by `argparse`."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def ids(text: str) -> tuple[int, ...]:
    """Token ids between commas."""
    return tuple(natural(part) for part in text.split(","))


def natural(text: str) -> int:
    """A whole number, 0 or more."""
    return _whole(text, 0)


def count(text: str) -> int:
    """A whole number, 1 or more."""
    return _whole(text, 1)


def _whole(text: str, least: int) -> int:
    if not text.strip().isdecimal() or (len(text.strip()) <= 18 and int(text) < least):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of {least} or more")
    if len(text.strip()) > 18:
        raise argparse.ArgumentTypeError("must have at most 18 digits")
    return int(text)


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
