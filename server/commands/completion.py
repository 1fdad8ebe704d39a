"""`mks completion`: a script by which a shell completes command lines."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from ...backends.commands import bench_compile, compile, pack, tune, verify
from ...backends.commands.run_command import command_parser
from ...dsl.codes import pages
from ...dsl.commands import check, cli, explain, fmt, lsp, new, plan
from ...dsl.targets import targets
from ...models import library
from . import bench_command, entry
from .shell_scripts import SHELLS, Argument, CommandLine, Takes

_ABOUT = "Print a script by which a shell completes the command lines of `mks`: commands, options, values, files."
_EXAMPLES = """\
examples:
  source <(mks completion bash)                                       # in ~/.bashrc
  source <(mks completion zsh)                                        # in ~/.zshrc, behind compinit
  mks completion fish > ~/.config/fish/completions/mks.fish
"""
_FILES = ("FILE", "OUT", "OUT.npz", "PEM", "JSON")


def completion(argv: list[str]) -> int:
    """Print a script that completes command lines in bash, zsh or fish."""
    args = make_parser().parse_args(argv)
    print(SHELLS[args.shell](command_lines()), end="")
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = command_parser("completion", _ABOUT, _EXAMPLES)
    parser.add_argument("shell", metavar="SHELL", choices=list(SHELLS), help="bash, zsh or fish")
    return parser


# By a command's words: what reads its command line.
PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "check": check.make_parser,
    "plan": plan.make_parser,
    "fmt": fmt.make_parser,
    "explain": explain.make_parser,
    "new": new.make_parser,
    "lsp": lsp.make_parser,
    "compile": compile.make_parser,
    "pack": pack.make_parser,
    "verify": verify.make_parser,
    "tune": tune.make_parser,
    "run": entry.run_parser,
    "serve": entry.serve_parser,
    "bench serve": bench_command.make_parser,
    "bench compile": bench_compile.make_parser,
    "completion": make_parser,
}


def command_lines() -> list[CommandLine]:
    """What each command takes; of those that installed packages bring, files, as nothing more is known of them."""
    found = []
    for words, make in PARSERS.items():
        parser = make()
        about = " ".join((parser.description or "").split()).partition(". ")[0].partition(": ")[0].rstrip(".")
        # `bench` reads its second word as an argument; here it is one of the command's.
        arguments = tuple(_argument(each) for each in parser._actions if each.dest not in ("what", "help"))
        found.append(CommandLine(words, about, arguments))
    ours = {words.split()[0] for words in PARSERS}
    file = Argument((), "FILE", "", Takes.FILE, library.known())
    return found + [CommandLine(name, about, (file,)) for name, about in cli.abouts().items() if name not in ours]


def _argument(action: argparse.Action) -> Argument:
    name = action.metavar if isinstance(action.metavar, str) else action.dest
    about = " ".join((action.help or "").replace("%%", "%").split()).partition(" (default")[0].partition("; ")[0]
    words = tuple(str(choice) for choice in action.choices or ())
    takes = Takes.VALUE
    if action.nargs == 0:
        takes = Takes.NOTHING
    elif not action.option_strings and action.dest in ("model", "file", "target"):
        words, takes = library.known(), Takes.FILE
    elif name == "DIR":
        takes = Takes.FOLDER
    elif name in _FILES or action.type is Path:
        takes = Takes.FILE
    elif name == "T" and action.dest == "target":
        words = tuple(targets.known())
    elif name == "CODE":
        words = tuple(sorted(pages()))
    return Argument(tuple(action.option_strings), name, about, takes, words)
