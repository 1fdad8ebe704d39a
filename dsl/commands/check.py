"""`mks check`: everything that is wrong with a definition, and what its schedules need."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import field

from ..diagnostics import Diagnostic, Sink, did_you_mean, reportable
from ..records import define
from ..render import as_json, render_all, style_for, summary
from ..source import Source
from ..text.files import decode_source, read_source
from .config import read_config
from .sizes import add_sizes
from .tensors import compared

if TYPE_CHECKING:
    from ..frontend import Definition
    from ..model.instance import Instance
    from ..program.lower.passes import Lowered
    from ..schedule.ir import Schedule

FINDERS = "mks.finders"
EXAMPLES = """\
examples:
  mks check kimi_k3
  mks check tiny.mks --dtype f32
  mks check qwen38 --target tpu7x --json
  mks check qwen38 --checkpoint ~/Qwen3.8-27B       # do the sizes agree?
  mks check qwen38 --config config.json --adopt     # take the sizes from there
  mks check tiny.mks --size layers=2 --size d=64

exit status: 0 fine, 1 errors, 2 wrong usage
"""


def main(argv: list[str]) -> int:
    """Check a definition and its schedules."""
    return check(parsed(make_parser(), argv))


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        "mks check",
        description="Report all errors of a definition, and for each schedule its memory, traffic and roofline time.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--target", metavar="T", help="only schedules for this target; without one, an unsharded one")
    parser.add_argument("--compile", action="store_true", help="compile each schedule, and show what it takes then")
    return add_definition(parser)


def add_definition(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add what every command takes that looks at a definition's schedules; gives the parser back."""
    parser.add_argument(
        "file", metavar="FILE", help="a .mks file, a shipped definition's name, or - for standard input"
    )
    parser.add_argument("--schedule", metavar="NAME", help="only this schedule")
    config = parser.add_mutually_exclusive_group()
    config.add_argument(
        "--checkpoint",
        metavar="DIR",
        type=Path,
        help="compare the sizes with DIR/config.json, and the weights with its tensors",
    )
    config.add_argument("--config", metavar="JSON", type=Path, help="compare the sizes with this config")
    parser.add_argument("--adopt", action="store_true", help="take the sizes from the config instead of comparing")
    add_sizes(parser)
    parser.add_argument(
        "--dtype",
        choices=["bf16", "f32"],
        default="bf16",
        help="working type, which the model's bf16 stands for (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def parsed(parser: argparse.ArgumentParser, argv: list[str]) -> argparse.Namespace:
    """Arguments of a parser with `add_definition`."""
    args = parser.parse_args(argv)
    if args.adopt and args.config is None and args.checkpoint is None:
        parser.error("--adopt takes the sizes from --config or --checkpoint; neither is given")
    return args


@define
class Answer:
    """What is said of a file; `texts` and `schedules` tell the same, for people and for programs."""

    diagnostics: list[Diagnostic] = field(factory=list)
    texts: list[str] = field(factory=list)
    schedules: list[dict[str, Any]] = field(factory=list)

    @property
    def status(self) -> int:
        """1 with errors, else 0."""
        return int(any(d.severity == "error" for d in self.diagnostics))


def check(args: argparse.Namespace) -> int:
    """Check, print, and return the exit status."""
    source = given(args.file)
    answer = Answer()
    if isinstance(source, list):
        answer.diagnostics += source
    else:
        examine(source, args, answer)
    diagnostics = reportable(answer.diagnostics)
    if args.json:
        answered = {"file": args.file, "diagnostics": [as_json(d) for d in diagnostics], "schedules": answer.schedules}
        print(json.dumps(answered, indent=2))
        return answer.status
    faults = [d for d in diagnostics if d.severity != "note"]
    print(render_all(diagnostics, style_for(sys.stdout)), end="")
    print("\n\n".join([*answer.texts, *([] if faults else [f"{args.file}: {summary(diagnostics)}"])]))
    return answer.status


def given(file: str) -> Source | list[Diagnostic]:
    """The text of a file, of a definition that is known by name, or of standard input; or why it cannot be read."""
    if file == "-":
        read = decode_source("<stdin>", sys.stdin.buffer.read())
    elif file.endswith(".mks") or Path(file).name != file or Path(file).is_file():
        read = read_source(file)
    else:
        source, diagnostics = finder()(file)
        return diagnostics if source is None else source
    return [read] if isinstance(read, Diagnostic) else read


def finder() -> Callable[[str], tuple[Source | None, list[Diagnostic]]]:
    """What knows definitions by name belongs to another room, which this one does not import: it is found by name.

    Raises OSError where the installation knows of none.
    """
    from importlib.metadata import entry_points

    for point in entry_points(group=FINDERS):
        find: Callable[[str], tuple[Source | None, list[Diagnostic]]] = point.load()
        return find
    raise OSError(f"nothing that finds definitions is installed: no entry point in `{FINDERS}`; install mks again")


def examine(source: Source, args: argparse.Namespace, answer: Answer) -> None:
    """Resolve a definition, at other sizes if asked for, and report its schedules."""
    resolved_definition = resolved(source, args, answer.diagnostics)
    if resolved_definition is None:
        return
    from ..program.analysis.check_program import check_program

    definition, instances = resolved_definition
    for key in definition.own_schedules:
        schedule, instance = definition.schedules.get(key), instances.get(key[0])
        if schedule is None or instance is None:
            continue
        if args.schedule in (None, schedule.name) and args.target in (None, schedule.target.name):
            resized = instance.values != definition.instances[key[0]].values
            why = misfits(schedule, instance) if resized else []
            if why:
                _inapplicable(schedule, why, answer)
                continue
            lowered = _report(schedule, instance, answer, args.compile)
            # A line without effect is one only at the text's own sizes.
            answer.diagnostics.extend(check_program(schedule, instance, lines=not resized, lowered=lowered))
    if answer.schedules or answer.status or not (args.schedule or args.target):
        return
    if args.schedule:
        answer.diagnostics.append(none_chosen(definition, args.file, *(x for x in (args.schedule, args.target) if x)))
    else:
        _unsharded(definition, instances, args.target, answer, args.compile)


def resolved(
    source: Source, args: argparse.Namespace, diagnostics: list[Diagnostic]
) -> tuple[Definition, dict[str, Instance]] | None:
    """A definition and its models at the sizes asked for; nothing where the config cannot be read."""
    from ..frontend import check_source

    config = read_config(args.config or args.checkpoint / "config.json") if args.config or args.checkpoint else None
    definition = check_source(source)
    diagnostics.extend(definition.diagnostics)
    if isinstance(config, Diagnostic):
        diagnostics.append(config)
        return None
    instances = dict(definition.instances)
    working = getattr(args, "dtype", "bf16")
    if config is not None or args.size or working != "bf16":
        for name in set(definition.main) & set(instances):
            _resize(name, instances, config, args, working, diagnostics)
    return definition, instances


def _resize(
    name: str,
    instances: dict[str, Instance],
    config: Any,
    args: argparse.Namespace,
    working: str,
    diagnostics: list[Diagnostic],
) -> None:
    """Replace an instance by one at the sizes asked for; none where they do not fit."""
    from ..model.check_instance import check_instance
    from ..model.instantiate import instantiate

    model = instances.pop(name).model
    instance, wrong = instantiate(
        model, config=config, overrides=args.size, adopt=args.adopt, working=working, adopting="--adopt"
    )
    sink = Sink(wrong)
    if instance is not None and check_instance(instance, sink):
        instances[name] = instance
        if args.checkpoint is not None:
            sink.diagnostics.extend(compared(instance, args.checkpoint, args.size))
    diagnostics.extend(sink.diagnostics)


def _inapplicable(schedule: Schedule, why: list[str], answer: Answer) -> None:
    """At other sizes than the text's, a schedule that does not divide them is left out."""
    answer.texts.append(f"schedule `{schedule.name}` is not applicable at these sizes: {'; '.join(why)}")
    answer.schedules.append({"name": schedule.name, "model": schedule.model.name, "not_applicable": why})


def _report(schedule: Schedule, instance: Instance, answer: Answer, compile_: bool) -> Lowered:
    """A schedule's figures; its Programs."""
    from ..program.analysis import report
    from ..program.lower.passes import lower_all

    lowered, measured = lower_all(schedule, instance), None
    if compile_:
        from .compiled import compiled

        measured = compiled(schedule, lowered, answer.diagnostics)
    reported = report.report(schedule, instance, Sink(answer.diagnostics), measured, lowered)
    answer.texts.append(report.as_text(reported))
    answer.schedules.append(report.as_json(reported))
    return lowered


def misfits(schedule: Schedule, instance: Instance) -> list[str]:
    """Why a schedule does not divide the sizes of an instance."""
    from ..schedule.fits import check_shares

    tried = Sink()
    return [] if check_shares(schedule, instance, tried) else [d.message for d in tried.diagnostics]


def _unsharded(
    definition: Definition, instances: dict[str, Instance], target: str, answer: Answer, compile_: bool
) -> None:
    """What the models need of one core of a target that no schedule of theirs is for."""
    from ..schedule.ir import bare
    from ..targets import targets

    row = targets.find(target)
    if row is None:
        helps = did_you_mean(target, targets.known())
        notes = targets.notes(target)
        answer.diagnostics.append(Diagnostic("E201", f"unknown target `{target}`", notes=notes, helps=helps))
        return
    contexts = [x.context for x in definition.schedules.values() if x is not None]
    for name in definition.main:
        if name in instances:
            without = bare(instances[name].model, row, max(contexts, default=4096))
            _report(without, instances[name], answer, compile_)


def none_chosen(definition: Definition, file: str, *asked: str) -> Diagnostic:
    """E008: what was asked for, and what there is."""
    own = [definition.schedules.get(key) for key in definition.own_schedules]
    known = [
        f"`{x.name}` for {x.target.name}, rows {', '.join(map(str, x.rows))}{_spans(x)}" for x in own if x is not None
    ]
    if not known:
        return Diagnostic("E008", f"{file} has no schedule", notes=("`target` and `context` alone are a complete one",))
    notes = (f"schedules: {'; '.join(known)}",)
    return Diagnostic("E008", f"no schedule of {file} matches {' and '.join(f'`{x}`' for x in asked)}", notes=notes)


def _spans(schedule: Schedule) -> str:
    spans = [str(each.tokens) for each in schedule.passes if each.consecutive]
    return f", span {', '.join(spans)}" if spans else ""
