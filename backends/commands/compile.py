"""`mks compile`."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve

from ...dsl.commands.argtypes import count
from ...dsl.commands.check import resolved
from ...dsl.commands.sizes import add_sizes
from ...dsl.diagnostics import Diagnostic, MksError, Sink
from ...dsl.program.analysis.capacity import lower_fitting
from ..opening.cannot_open import CannotOpen
from ..opening.find import find_schedule, main_model
from .run_command import command_parser, guarded
from .terminal import warn, working

if TYPE_CHECKING:
    from ...dsl.model.instance import Instance
    from ...dsl.program.ir import Program
    from ...dsl.schedule.ir import Schedule
    from ...dsl.source import Source
    from ..pallas.cycles.bundles import Bundles

_ABOUT = """\
Compile a definition's decode step for the TPUs of a schedule. It needs libtpu, and no TPU.

The folder gets manifest.json, step.bin (the executable, for hosts with these TPUs and
the same libtpu), plan.txt, plan.json and bill.json. For several numbers of rows each
has a folder of its own in it, rows1, rows2, …, and manifest.json lists them.
"""
_EXAMPLES = """\
examples:
  mks compile qwen38 --rows 1 -o compiled
  mks compile qwen38.mks --schedule ironwood4 --context 32768 -o compiled
  mks compile qwen38 --span 8 --bundles -o verification
  mks compile qwen3 --checkpoint ~/Qwen3-0.6B --adopt -o compiled --json

With --bundles, the bundles that a step executes are counted from the compiler's schedule
when the executable is written. That compiles twice more, in processes of their own, which
takes several times as long as all the rest. What was counted is kept: later compiles of
the same step say it too, and `mks plan --time` predicts with it.

exit status: 0 fine, 1 errors, 2 wrong usage
"""


def compile_(argv: list[str]) -> int:
    """Compile a definition's decode step for TPUs that need not be attached; the exit status."""
    return guarded(_parsed, argv, _compile)


def _parsed(argv: list[str]) -> argparse.Namespace:
    return parse(make_parser(), argv)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = command_parser("compile", _ABOUT, _EXAMPLES)
    add = parser.add_argument
    add("-o", "--output", metavar="DIR", type=Path, required=True, help="the folder to write")
    add(
        "--span",
        metavar="N",
        type=count,
        help="a pass over N consecutive tokens of one sequence, one of the schedule's spans, instead of a decode step",
    )
    add("--bundles", action="store_true", help="count the bundles that a step executes, if they are not known yet")
    add_choice(parser)
    add("--json", action="store_true", help="print one JSON object: folder, seconds, steps")
    return parser


def parse(parser: argparse.ArgumentParser, argv: list[str]) -> argparse.Namespace:
    """Arguments of a parser with `add_choice`."""
    args = parser.parse_args(argv)
    if getattr(args, "span", None) is not None and args.rows is not None:
        parser.error("--span is of one sequence; --rows does not go with it")
    if args.adopt and args.config is None and args.checkpoint is None:
        parser.error("--adopt takes the sizes from --config or --checkpoint; neither is given")
    return args


def add_choice(parser: argparse.ArgumentParser, model: str | None = None) -> None:
    """What says which Programs of a definition are meant; `model` need not be named."""
    add = parser.add_argument
    about = "a shipped definition's name, or a .mks file"
    if model is None:
        add("model", metavar="MODEL", help=about)
    else:
        add("model", metavar="MODEL", nargs="?", default=model, help=f"{about} (default: %(default)s)")
    add("--schedule", metavar="NAME", help="which of the definition's schedules (default: its only one)")
    add("--rows", metavar="N", type=count, help="sequences at once (default: each number that the schedule lists)")
    add("--context", metavar="N", type=count, help="positions of a sequence (default: the schedule's)")
    config = parser.add_mutually_exclusive_group()
    config.add_argument("--checkpoint", metavar="DIR", type=Path, help="compare the sizes with DIR/config.json")
    config.add_argument("--config", metavar="JSON", type=Path, help="compare the sizes with this config")
    add("--adopt", action="store_true", help="take the sizes from the config instead of comparing")
    add_sizes(parser)


def chosen(args: argparse.Namespace) -> tuple[Source, Schedule, Instance]:
    """The definition, and the schedule and model that are meant, at the sizes asked for; warnings are shown.

    Raises `CannotOpen`, or `MksError` with all that is wrong.
    """
    from ...dsl.schedule.fits import check_shares
    from ...models.library import find_definition

    source, diagnostics = find_definition(args.model)
    resolved_definition = None if source is None else resolved(source, args, diagnostics)
    if source is None or resolved_definition is None or any(d.severity == "error" for d in diagnostics):
        raise MksError(diagnostics)
    definition, instances = resolved_definition
    model = main_model(definition, args.model)
    schedule = find_schedule(definition, model, args.schedule, diagnostics)
    rows = schedule.rows if args.rows is None else (args.rows,)
    span = getattr(args, "span", None)
    if span is not None and span not in schedule.spans:
        spans = ", ".join(map(str, schedule.spans))
        raise CannotOpen(f"the schedule `{schedule.name}` has spans of {spans} tokens, not of {span}")
    schedule = evolve(schedule, rows=rows if span is None else (span,), context=args.context or schedule.context)
    instance, sink = instances[model.name], Sink()
    if not check_shares(schedule, instance, sink):
        raise MksError([*diagnostics, *sink.diagnostics])
    warn(diagnostics)
    return source, schedule, instance


def _compile(args: argparse.Namespace) -> None:
    begun = time.perf_counter()
    source, schedule, instance = chosen(args)
    folder, multiple = args.output.expanduser(), len(schedule.rows) > 1
    steps: list[tuple[Path, Program, dict[str, Any]]] = []
    for rows in schedule.rows:
        at = time.perf_counter()
        program = lower_fitting(schedule, instance, rows, consecutive=(args.span or 1) > 1)
        spent = time.perf_counter() - at
        with working(f"Compiling {schedule.model.name} for {schedule.target.name}, rows {rows}"):
            # What follows takes a while to import, and what is wrong with a definition is said before.
            from ..opening.artifact import definition, write_manifest, write_step
            from ..pallas.aot.measure import compile_step

            step_folder = folder / f"rows{rows}" if multiple else folder
            described = definition(source) | write_step(step_folder, compile_step(program), spent)
            described["seconds"] = round(time.perf_counter() - begun, 3)
            write_manifest(step_folder, described)
        steps.append((step_folder, program, described))
        begun = time.perf_counter()
        if not args.json:
            print(_line(step_folder, described), flush=True)
    for step_folder, program, described in steps:
        _count(step_folder, program, described, args.bundles, quiet=args.json)
    shown = [{k: v for k, v in described.items() if k not in ("name", "definition")} for _, _, described in steps]
    if multiple:
        folders = [{"rows": described["rows"], "folder": step_folder.name} for step_folder, _, described in steps]
        of_all = {"rows": list(schedule.rows), "steps": folders}
        write_manifest(folder, definition(source) | _shared(shown) | of_all)
    if args.json:
        print(json.dumps({"folder": str(folder), "steps": shown}, indent=1))


def _shared(shown: list[dict[str, Any]]) -> dict[str, Any]:
    """What all steps say alike."""
    first, *rest = shown
    return {key: value for key, value in first.items() if all(other[key] == value for other in rest)}


def _count(step_folder: Path, program: Program, described: dict[str, Any], count: bool, quiet: bool) -> None:
    """Into the manifest, where they are known or to `count`; a step whose bundles cannot be is no reason to fail."""
    from ..opening.artifact import counted, write_manifest
    from ..pallas.cycles.bundle_cache import kept

    bundles: Bundles | Diagnostic | None = kept(program)
    if bundles is None and count:
        with working(f"Counting the bundles of a step, rows {program.rows}"):
            from ..pallas.cycles.counting import count_step

            bundles = count_step(program)
    if bundles is None:
        return
    if isinstance(bundles, Diagnostic):
        warn([bundles])
        return
    described |= counted(bundles)
    write_manifest(step_folder, described)
    if not quiet:
        print(f"rows {program.rows}: {described['bundles']:,} bundles a step, counted from the compiler's schedule")


def _line(step_folder: Path, described: dict[str, Any]) -> str:
    mib = 1 << 20
    return (
        f"rows {described['rows']}: {step_folder} in {described['seconds']:.1f} s, "
        f"{described['lower_s']:.1f} to lower and "
        f"{described['compile_s']:.1f} to compile; VMEM {described['vmem_compiler_bytes'] / mib:.2f} MiB of the bill's "
        f"{described['vmem_bill_bytes'] / mib:.2f}, HBM {described['hbm_bytes'] / 1e9:.2f} GB, read a step "
        f"{described['read_bytes']['total'] / 1e9:.3f} GB"
    )
