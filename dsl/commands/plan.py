"""`mks plan`: what moves in a step, and when: each schedule's Program in words or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..diagnostics import Diagnostic, MksError, ordered
from ..render import as_json, render_all, style_for
from .argtypes import count, natural
from .check import add_definition, given, misfits, none_chosen, parsed, resolved
from .pictures import add_pictures, asked, write

if TYPE_CHECKING:
    from ..frontend import Definition
    from ..model.instance import Instance
    from ..program.ir import Program
    from ..schedule.ir import Pass, Schedule

ABOUT = """\
Print the Program of each schedule, for each number of rows or for one span: what a step
reads and writes, buffers, rings and their tapes, products, collectives, and all that
happens, in order. Bytes are exact, times predicted; both are those of one core. With
--time, how long the step takes by a simulation of it, where the core waits and for what;
computing takes the bundles that `mks compile --bundles` counted of the same Program, or
else what is estimated by op. With --svg, --html or --trace, the same as files to look at; of several Programs,
each has a file, with the schedule and the rows added to its name.
"""
GROUP = "mks.timelines"
EXAMPLES = """\
examples:
  mks plan qwen38 --rows 1
  mks plan qwen38 --schedule ironwood4 --rows 8 --json
  mks plan qwen38 --rows 1 --time --position 1024
  mks plan qwen38 --span 8 --time
  mks plan smollm2 --size layers=2
  mks plan kimi_k3 --rows 8 --svg kimi.svg --html kimi.html --trace kimi.json

exit status: 0 fine, 1 errors, 2 wrong usage
"""


def main(argv: list[str]) -> int:
    """Say what moves and when: a schedule's Program in words."""
    parser = make_parser()
    args = parsed(parser, argv)
    if args.position is not None and not args.time and not asked(args):
        parser.error("--position is for --time, --svg, --trace and --html")
    return plan(args)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        "mks plan",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--rows", metavar="N", type=count, help="only for this number of sequences at once")
    which.add_argument(
        "--span",
        metavar="N",
        type=count,
        help="a pass over N tokens of one sequence, one of the schedule's spans, instead of decode steps",
    )
    parser.add_argument("--time", action="store_true", help="predict how long the step takes")
    add_pictures(parser)
    parser.add_argument(
        "--position",
        metavar="N",
        type=natural,
        help="each row's earlier tokens, for times "
        "and pictures; at most what the context has room for, which is the default",
    )
    return add_definition(parser)


def plan(args: argparse.Namespace) -> int:
    """Lower, print, and return the exit status; diagnostics of the text go to the standard error stream."""
    source, diagnostics = given(args.file), []
    programs: list[Program] = []
    if isinstance(source, list):
        diagnostics += source
    else:
        definition = resolved(source, args, diagnostics)
        if definition is not None and not _failed(diagnostics):
            programs = lowered(*definition, args, diagnostics)
    describe = _timeline(args.position) if args.time else _as_written
    written = [str(path) for path in write(programs, args)]
    quiet = written and not args.time and not args.json
    plans = [] if quiet else [describe(program, args.json) for program in programs]
    reported = ordered(diagnostics)
    if args.json:
        print(json.dumps({"schedules": plans, "diagnostics": [as_json(d) for d in reported]}, indent=2))
    else:
        print(render_all(reported, style_for(sys.stderr)), end="", file=sys.stderr)
        print("\n\n\n".join(plans), end="\n" * bool(plans))
        print("".join(f"wrote {path}\n" for path in written), end="")
    return int(_failed(diagnostics))


def _as_written(program: Program, data: bool) -> Any:
    if data:
        from ..program.print.json import record

        return record(program)
    from ..program.print.text import words

    return words(program)


def _timeline(position: int | None) -> Callable[[Program, bool], Any]:
    """What predicts times belongs to another room, which this one does not import: it is found by name.

    Raises OSError where the installation knows of none.
    """
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        report = point.load()
        return lambda program, data: report(program, position)[data]
    raise OSError(f"nothing that predicts times is installed: no entry point in `{GROUP}`; install mks again")


def lowered(
    definition: Definition, instances: dict[str, Instance], args: argparse.Namespace, diagnostics: list[Diagnostic]
) -> list[Program]:
    """A Program for each schedule and number of rows that is asked for; `found` grows by what stands in the way."""
    from ..program.analysis.check_program import idle_lines
    from ..program.lower.lower import lower
    from ..program.verify.prove import prove_all
    from ..schedule.shares import Shares

    programs: list[Program] = []
    matched = False
    for key in definition.own_schedules:
        schedule, instance = definition.schedules.get(key), instances.get(key[0])
        if schedule is None or instance is None or args.schedule not in (None, schedule.name):
            continue
        passes = wanted(schedule, args)
        matched = matched or bool(passes)
        resized = instance.values != definition.instances[key[0]].values
        if resized and (why := misfits(schedule, instance)):
            diagnostics.append(
                Diagnostic("E213", f"`{schedule.name}` is not applicable at these sizes", notes=tuple(why))
            )
            continue
        shares = Shares(schedule, instance)
        try:
            each_pass = [
                lower(schedule, instance, each.tokens, consecutive=each.consecutive, shares=shares) for each in passes
            ]
        except MksError as e:
            diagnostics.extend(e.diagnostics)
            continue
        diagnostics.extend(prove_all(each_pass))
        diagnostics.extend(idle_lines(each_pass[0]) if each_pass and not resized else [])
        programs += each_pass
    if not matched and not _failed(diagnostics):
        asked = (args.schedule, f"rows {args.rows}" if args.rows else None, f"span {args.span}" if args.span else None)
        diagnostics.append(none_chosen(definition, args.file, *(x for x in asked if x)))
    return programs


def wanted(schedule: Schedule, args: argparse.Namespace) -> list[Pass]:
    """The passes that are meant: of so many rows, of a span, or every decode step."""
    if args.span is not None:
        return [each for each in schedule.passes if each.consecutive and each.tokens == args.span]
    return [each for each in schedule.passes if not each.consecutive and args.rows in (None, each.tokens)]


def _failed(diagnostics: list[Diagnostic]) -> bool:
    return any(d.severity == "error" for d in diagnostics)
