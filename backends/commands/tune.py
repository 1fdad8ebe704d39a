"""`mks tune`: a faster schedule, found by search."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from ...dsl.commands.argtypes import count, natural
from ...dsl.commands.check import add_definition, given, none_chosen, parsed, resolved
from ...dsl.diagnostics import Diagnostic, MksError, ordered
from ...dsl.frontend import Definition, check_source
from ...dsl.model.instance import Instance
from ...dsl.render import as_json, render_all, style_for
from ...dsl.schedule.ir import Schedule
from ...dsl.source import Source
from ...dsl.text import syntax as s
from ..timeline.rewrite import rewrite
from ..timeline.tune import Tuned, tune

ABOUT = """\
Search for a schedule whose step is predicted to be faster: a stream of what none carries,
slots of rings, tiles of caches, points of prefetches, and how sums are completed. Whatever
is kept fits by the bill and is proven free of races. The schedule goes to standard output;
what gained, and what was tried, to standard error. How sums are completed and travel is
numerics: read those lines before you use them.
"""
EXAMPLES = """\
examples:
  mks tune qwen38 --schedule ironwood4
  mks tune qwen38 --rows 1 --position 1024 --json

exit status: 0 fine, 1 errors, 2 wrong usage
"""


def main(argv: list[str]) -> int:
    """Search for a faster schedule, by predicted times."""
    args = parsed(make_parser(), argv)
    diagnostics: list[Diagnostic] = []
    results = _tuned(args, diagnostics)
    diagnostics = list(ordered(diagnostics))
    print(render_all(diagnostics, style_for(sys.stderr)) if not args.json else "", end="", file=sys.stderr)
    if args.json:
        print(json.dumps({"schedules": results, "diagnostics": [as_json(d) for d in diagnostics]}, indent=2))
    else:
        print("\n\n".join(each["text"] for each in results), end="\n" * bool(results))
    return int(any(d.severity == "error" for d in diagnostics))


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        "mks tune", description=ABOUT, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows",
        metavar="N",
        type=count,
        help="search for this number of sequences only; all numbers of rows must still fit",
    )
    parser.add_argument(
        "--position",
        metavar="N",
        type=natural,
        help="each row's earlier tokens; at most what the context has room for, which is the default",
    )
    return add_definition(parser)


def _tuned(args: argparse.Namespace, diagnostics: list[Diagnostic]) -> list[dict[str, Any]]:
    source = given(args.file)
    if isinstance(source, list):
        diagnostics += source
        return []
    resolved_definition = resolved(source, args, diagnostics)
    if resolved_definition is None or any(d.severity == "error" for d in diagnostics):
        return []
    definition, instances = resolved_definition
    results = []
    for model, name in definition.own_schedules:
        schedule, instance = definition.schedules.get((model, name)), instances.get(model)
        if schedule is None or instance is None or args.schedule not in (None, name):
            continue
        if args.rows is not None and args.rows not in schedule.rows:
            continue
        try:
            results.append(_one(source, definition, schedule, instance, args))
        except MksError as e:
            diagnostics += e.diagnostics
    if not results and not any(d.severity == "error" for d in diagnostics):
        diagnostics.append(
            none_chosen(definition, args.file, *(x for x in (args.schedule, args.rows and str(args.rows)) if x))
        )
    return results


def _one(
    source: Source, definition: Definition, schedule: Schedule, instance: Instance, args: argparse.Namespace
) -> dict[str, Any]:
    rows = None if args.rows is None else (args.rows,)
    tuned = tune(schedule, instance, rows, args.position, lambda line: print(line, file=sys.stderr, flush=True))
    print(_summary(tuned), file=sys.stderr)
    return {
        "schedule": schedule.name,
        "predicted": True,
        "before_seconds": tuned.before,
        "after_seconds": tuned.after,
        "tried": tuned.tried,
        "searched": [{"what": name, "made": many, "fitted": fitted} for name, many, fitted in tuned.searched],
        "kept": [{"text": move.text, "seconds": move.steps} for move in tuned.accepted],
        "text": block(source, definition, schedule, tuned.schedule),
    }


def block(source: Source, definition: Definition, old: Schedule, new: Schedule) -> str:
    """The text of the new schedule alone, as it would stand in the file."""

    def declared(file: s.File) -> s.Schedule:
        return next(
            x
            for x in file.items
            if isinstance(x, s.Schedule) and (x.name.text, x.model.text) == (old.name, old.model.name)
        )

    text = rewrite(source, declared(definition.file), old, new)
    return declared(check_source(Source(source.name, text)).file).span.text


def _summary(tuned: Tuned) -> str:
    each = []
    for n, step in tuned.after.items():
        steps = f"{tuned.before[n] * 1e3:.3f} -> {step * 1e3:.3f} ms"
        each.append(f"{n} row{'s' * (n > 1)}: {steps}, {1 - step / tuned.before[n]:.1%} less")
    lines = [f"predicted, {tuned.tried} schedules tried: {'; '.join(each)}"]
    for name, many, fitted in tuned.searched:
        moves = [move.text for move in tuned.accepted if move.text.startswith(name)]
        fit = "" if fitted == many else f", {many - fitted} do not fit"
        lines.append(f"  {name}: {many} tried{fit}; {f'kept {len(moves)}' if moves else 'none is faster'}")
    return "\n".join(lines)
