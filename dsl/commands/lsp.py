"""`mks lsp`: a language server for editors."""

from __future__ import annotations

import argparse
import sys

EXAMPLES = """\
examples:
  mks lsp          # started by an editor, which speaks through standard input and output

An editor's settings are in EDITORS.md of the package `mks.grammar`, with a TextMate grammar for colours.
exit status: 0 fine, 1 the editor went away without a word, or pygls is not installed
"""


def main(argv: list[str]) -> int:
    """Serve an editor."""
    make_parser().parse_args(argv)
    try:
        import pygls  # noqa: F401
    except ImportError:
        print("mks lsp: pygls is missing; `pip install 'mks[lsp]'` installs it", file=sys.stderr)
        return 1
    from ..lsp.server import serve

    return serve()


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        "mks lsp",
        description="Serve an editor by the Language Server Protocol: diagnostics, hovers, definitions, formatting.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--stdio", action="store_true", help="speak through standard input and output (always so)")
    return parser
