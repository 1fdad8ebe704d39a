"""`--size NAME=VALUE`, for every command that takes sizes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """The option, as often as there are sizes to set; `args.size` is a dict."""
    parser.add_argument("--size", metavar="NAME=VALUE", type=_size, action=_Once, default={}, help="set one size")


class _Once(argparse.Action):
    """Collects sizes by name; a second value for one is wrong usage."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        assert isinstance(values, tuple)
        name, value = values
        given = getattr(namespace, self.dest)
        if name in given:
            parser.error(f"--size gives `{name}` twice")
        setattr(namespace, self.dest, {**given, name: value})


def _size(text: str) -> tuple[str, int | float]:
    """`layers=2`."""
    name, _, value = (part.strip() for part in text.partition("="))
    try:
        if not name.isidentifier():
            raise ValueError
        return name, int(value) if value.lstrip("-").isdecimal() else float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, as in layers=2") from None
