"""The `mks` command: finds the word's function, and sees to it that nothing ends in a traceback."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from traceback import print_exception
from typing import TYPE_CHECKING

from ..diagnostics import Diagnostic, MksError, did_you_mean
from ..installed import PackageError, entries, load
from ..version import version

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# A command is a function that takes its arguments and returns the exit status.
type Command = Callable[[list[str]], int]

GROUP = "mks.commands"
BUILT_IN = {
    "check": ("check", "check a definition and its schedules"),
    "lsp": ("lsp", "serve an editor"),
    "plan": ("plan", "say what moves and when: a schedule's Program in words"),
    "fmt": ("fmt", "lay definitions out in the one way"),
    "explain": ("explain", "say what an error code means"),
    "new": ("new", "write a small definition to start from"),
}
USAGE = """\
usage: mks COMMAND ...

A small language for language-model decoding.

commands:
{commands}

options:
  -h, --help     this text; `mks COMMAND --help` for one command
  --version      the version
  --debug        show the traceback of an internal error (or MKS_DEBUG=1)

examples:
  mks new tiny.mks                     # a definition to start from
  mks check tiny.mks                   # errors, or what it needs of its target
  mks plan tiny.mks                    # what moves in a step, and when
  mks explain E101                     # what an error means
  mks serve smollm2                    # chat over HTTP
"""
# Commands that last; the other built-in ones are over in less than a second.
LONG = frozenset({"lsp"})
# A short command makes fewer objects than this, or not much garbage among them.
COLLECT_AFTER = 100_000
# What a shell reports for a process that was interrupted, and for one whose reader went away.
INTERRUPTED, NOBODY_READS = 130, 141


def main(argv: list[str] | None = None) -> int:
    """Run a command; its exit status: 0 fine, 1 errors, 2 wrong usage."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = bool(os.environ.get("MKS_DEBUG"))
    if "--debug" in arguments:
        debug = True
        arguments.remove("--debug")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a character is no reason to fail
    try:
        status = run(arguments)
        sys.stdout.flush()
    except SystemExit as e:  # argparse: help, or wrong usage
        return e.code if isinstance(e.code, int) else 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that the interpreter's last flush is quiet too
        return NOBODY_READS
    except MksError as e:
        show(e.diagnostics)
        if debug and e.__cause__ is not None:
            print_exception(e.__cause__)
        return 1
    except OSError as e:
        if debug:
            raise
        where = f"{e.filename}: " if e.filename else ""
        print(f"error: {where}{e.strerror or e}", file=sys.stderr)
        return 1
    except Exception as e:
        if debug:
            raise
        show([_bug(e, arguments)])
        return 1
    return status


def run(arguments: list[str]) -> int:
    """The command that the first word names."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage(), end="", file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    word, *rest = arguments
    if word == "--version":
        print(f"mks {version()}")
        return 0
    short = word in BUILT_IN and word not in LONG
    with _little_garbage() if short else nullcontext():
        command = find(word)
        if command is None:
            near = did_you_mean(word, [*BUILT_IN, *others()])
            print(f"mks: unknown command `{word}`{': ' if near else ''}{''.join(near)}", file=sys.stderr)
            print("try `mks --help`", file=sys.stderr)
            return 2
        return command(rest)


@contextmanager
def _little_garbage() -> Iterator[None]:
    """Modules and trees stay until the process ends: to search them for garbage would take a sixth of its time."""
    before = gc.get_threshold()
    gc.set_threshold(COLLECT_AFTER)
    atexit.register(gc.freeze)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def find(word: str) -> Command | None:
    """A command's function; only the module that holds it is imported."""
    if word in BUILT_IN:
        command: Command = import_module(f".{BUILT_IN[word][0]}", __package__).main
        return command
    given = others().get(word)
    if given is None:
        return None
    try:
        command = load(given)
        if not callable(command):
            raise PackageError(f"`{given[0].value}` is no function, but {type(command).__name__}")
    except PackageError as e:
        if _is_ours(given[0]) and isinstance(e.__cause__, Exception):
            raise e.__cause__ from None
        raise OSError(f"the command `{word}` cannot be loaded: {e}") from e.__cause__
    return command


def others() -> dict[str, tuple[EntryPoint, ...]]:
    """Commands that are not of this room, not yet loaded: none of another package where one of ours has its name."""
    return {name: tuple(filter(_is_ours, given)) or given for name, given in entries(GROUP).items()}


def _is_ours(point: EntryPoint) -> bool:
    return point.value.startswith("mks.")


def abouts() -> dict[str, str]:
    """Every command, with the first line of its documentation."""
    lines = {name: about for name, (_, about) in BUILT_IN.items()}
    for name, given in sorted(others().items()):
        if name in BUILT_IN:
            continue
        try:
            about = (load(given).__doc__ or "").strip().partition("\n")[0].partition(";")[0].rstrip(".")
        except PackageError as e:  # another package's fault must not hide our help
            about = f"(cannot be loaded: {e})"
        lines[name] = about[:1].lower() + about[1:]
    return lines


def usage() -> str:
    """The help text, with every command."""
    lines = abouts()
    wide = max(map(len, lines))
    return USAGE.format(commands="\n".join(f"  {name:{wide}}  {about}" for name, about in lines.items()))


def show(diagnostics: list[Diagnostic] | tuple[Diagnostic, ...]) -> None:
    """Print to the standard error stream."""
    from ..render import render_all, style_for

    print(render_all(diagnostics, style_for(sys.stderr)), end="", file=sys.stderr)


def _bug(error: Exception, arguments: list[str]) -> Diagnostic:
    """An internal error, told apart from the user's."""
    from platform import platform, python_version

    return Diagnostic(
        "E900",
        "this is a bug in mks",
        notes=(
            f"error: {type(error).__name__}: {error}",
            f"version: mks {version()}, Python {python_version()}, {platform()}",
            f"arguments: {' '.join(arguments)}",
        ),
        helps=("`--debug` shows where it happened; please report it with the file",),
    )
