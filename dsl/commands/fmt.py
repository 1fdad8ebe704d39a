"""`mks fmt`: lay definitions out in the one way."""

from __future__ import annotations

import argparse
import sys
from difflib import unified_diff

from ..diagnostics import Diagnostic
from ..render import render_all, style_for
from ..source import Source
from ..text.files import decode_source, read_source, write_whole
from ..text.format import format_source

EXAMPLES = """\
examples:
  mks fmt models/*.mks               # rewrite the files that need it
  mks fmt --check --diff tiny.mks    # only show what would change
  mks fmt - < tiny.mks               # from standard input to standard output

A file with syntax errors is left as it is.
exit status: 0 fine, 1 errors (with --check also: a file would change), 2 wrong usage
"""


def main(argv: list[str]) -> int:
    """Lay definitions out."""
    args = make_parser().parse_args(argv)
    statuses = [_one(name, args.check, args.diff) for name in args.files]  # every file, also behind one with errors
    return max(statuses)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        "mks fmt",
        description="Rewrite definitions in their canonical layout: indents, columns, spaces, empty lines.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help="a .mks file, or - for standard input")
    parser.add_argument("--check", action="store_true", help="change nothing; say which files would change")
    parser.add_argument("--diff", action="store_true", help="change nothing; show what would change")
    return parser


def _one(name: str, check: bool, diff: bool) -> int:
    """Format one file; its exit status."""
    source = decode_source("<stdin>", sys.stdin.buffer.read()) if name == "-" else read_source(name)
    if isinstance(source, Diagnostic):
        return _refused([source])
    formatted = format_source(source)
    if not isinstance(formatted, str):
        return _refused(formatted)
    same = formatted == source.text
    if diff and not same:
        before, after = (text.replace("\r\n", "\n").splitlines(keepends=True) for text in (source.text, formatted))
        lines = unified_diff(before, after, name, f"{name} (formatted)")
        print("".join(line if line.endswith("\n") else line + "\n" for line in lines), end="")
    if check and not same:
        print(f"{name} would change")
        return 1
    if check or diff:
        return 0
    if name == "-":
        sys.stdout.buffer.write(formatted.encode("utf-8"))
    elif not same:
        return _write(source, formatted)
    return 0


def _write(source: Source, formatted: str) -> int:
    try:
        write_whole(source.name, formatted)
    except OSError as e:
        return _refused([Diagnostic("E003", f"`{source.name}` cannot be written: {(e.strerror or str(e)).lower()}")])
    print(f"{source.name} formatted")
    return 0


def _refused(diagnostics: list[Diagnostic]) -> int:
    print(render_all(diagnostics, style_for(sys.stderr)), end="", file=sys.stderr)
    return 1
