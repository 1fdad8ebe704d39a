"""What commands that open models have in common: how they read a command line, and how they fail."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from ...models.text.files import UnreadableFile
from ..opening.cannot_open import CannotOpen

_MAIN = "import sys; from mks.dsl.commands.cli import main; sys.exit(main())"

type Parse = Callable[[list[str]], argparse.Namespace]
type Work = Callable[[argparse.Namespace], int | None]


def itself(*arguments: str) -> list[str]:
    """The command line that runs `mks`, whatever the name that this program was started by."""
    return [sys.executable, "-c", _MAIN, *arguments]


def command_parser(name: str, about: str, examples: str) -> argparse.ArgumentParser:
    """A parser for `mks name`, with its texts as they are written."""
    return argparse.ArgumentParser(
        prog=f"mks {name}",
        description=about,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def guarded(parse: Parse, argv: list[str], work: Work, expected: tuple[type[Exception], ...] = ()) -> int:
    """Run a command; its exit status: what `work` says or 0, 1 with a message on stderr, 2 for wrong usage.

    Errors of the classes `expected` say by themselves what is wrong.

    Anything else, diagnostics and bugs, is raised for `mks` itself to show.
    """
    try:
        args = parse(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    try:
        return work(args) or 0
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"error: {where}{error.strerror or error}", file=sys.stderr)
    except Exception as error:
        if not isinstance(error, (CannotOpen, UnreadableFile, *expected)):
            raise
        print(f"error: {error}", file=sys.stderr)
    return 1
