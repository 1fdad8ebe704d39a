"""`mks explain`: what an error code means."""

from __future__ import annotations

import argparse
import sys

from ..codes import pages
from ..diagnostics import did_you_mean

EXAMPLES = """\
examples:
  mks explain E107      # what it means, with a wrong and a right example
  mks explain           # all codes

classes: E0 syntax, E1 names, types and shapes, E2 schedules, E3 capacity of a target, E4 checkpoints,
E9 bugs and limits of mks itself; W is a warning
"""


def main(argv: list[str]) -> int:
    """Explain an error code."""
    args = make_parser().parse_args(argv)
    if args.code is None:
        print("\n".join(f"{page.code}  {page.title}" for page in sorted(pages().values(), key=lambda p: p.code)))
        return 0
    page = pages().get(args.code.upper().strip("[]"))
    if page is None:
        near = did_you_mean(args.code.upper(), pages())
        print(f"mks explain: there is no code `{args.code}`{': ' if near else ''}{''.join(near)}", file=sys.stderr)
        return 2
    print(page.text, end="")
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        "mks explain",
        description="Say what a code such as E107 means, why it is an error, and what is right instead.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("code", metavar="CODE", nargs="?", help="such as E107; without it, all codes are listed")
    return parser
