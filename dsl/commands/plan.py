"""`mks plan`: what moves in a step, and when: each schedule's Program in words or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from ..diagnostics import Diagnostic, MksError, ordered
from ..render import as_json, render_all, style_for
from .check import given, misfits, none_chosen, parsed, resolved

if TYPE_CHECKING:
    from ..compile import Definition
    from ..model.instance import Instance
    from ..program.ir import Program

ABOUT = """\
Print the Program of each schedule, for each number of rows: what a step reads and
writes, buffers, rings and their tapes, products, collectives, and all that happens,
in order. Bytes are exact, times predicted; both are those of one core.
"""
EXAMPLES = """\
examples:
  mks plan models/qwen38.mks --rows 1
  mks plan models/qwen38.mks --schedule ironwood4 --rows 8 --json
  mks plan models/smollm2.mks --size layers=2

exit status: 0 fine, 1 errors, 2 wrong usage
"""


def main(argv: list[str]) -> int:
    """Say what moves and when: a schedule's Program in words."""
    parser = argparse.ArgumentParser(
        "mks plan",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", metavar="N", type=int, help="only for so many sequences at once")
    return plan(parsed(parser, argv))


def plan(args: argparse.Namespace) -> int:
    """Lower, print, and return the exit status; diagnostics of the text go to the standard error stream."""
    source, found = given(args.file), []
    programs: list[Program] = []
    if isinstance(source, Diagnostic):
        found.append(source)
    else:
        made = resolved(source, args, found)
        if made is not None and not _failed(found):
            programs = lowered(*made, args, found)
    said = ordered(found)
    if args.json:
        from ..program.record import record

        data: dict[str, Any] = {"schedules": [record(x) for x in programs], "diagnostics": [as_json(d) for d in said]}
        print(json.dumps(data, indent=2))
    else:
        from ..program.words import words

        print(render_all(said, style_for(sys.stderr)), end="", file=sys.stderr)
        print("\n\n\n".join(map(words, programs)), end="\n" * bool(programs))
    return int(_failed(found))


def lowered(
    definition: Definition, instances: dict[str, Instance], args: argparse.Namespace, found: list[Diagnostic]
) -> list[Program]:
    """A Program for each schedule and number of rows that is asked for; `found` grows by what stands in the way."""
    from ..program.effects import idle_lines
    from ..program.lower import lower

    programs: list[Program] = []
    chosen = False
    for key in definition.own_schedules:
        schedule, instance = definition.schedules.get(key), instances.get(key[0])
        if schedule is None or instance is None or args.schedule not in (None, schedule.name):
            continue
        rows = [n for n in schedule.rows if args.rows in (None, n)]
        chosen = chosen or bool(rows)
        resized = instance is not definition.instances[key[0]]
        if resized and (why := misfits(schedule, instance)):
            found.append(Diagnostic("E213", f"`{schedule.name}` is not applicable at these sizes", notes=tuple(why)))
            continue
        try:
            made = [lower(schedule, instance, n) for n in rows]
        except MksError as e:
            found.extend(e.diagnostics)
            continue
        found.extend(idle_lines(made[0]) if made and not resized else [])
        programs += made
    if not chosen and not _failed(found):
        asked = (args.schedule, args.rows and f"rows {args.rows}")
        found.append(none_chosen(definition, args.file, *(x for x in asked if x)))
    return programs


def _failed(found: list[Diagnostic]) -> bool:
    return any(d.severity == "error" for d in found)
