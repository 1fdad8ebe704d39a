"""`mks check`: everything that is wrong with a definition, and what its schedules need."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ..diagnostics import Diagnostic, Label, Sink, did_you_mean, ordered
from ..render import as_json, render_all, style_for, summary
from ..source import Source, Span
from ..text.files import decode_source, read_source
from .sizes import add_sizes
from .tensors import compared

if TYPE_CHECKING:
    from ..compile import Definition
    from ..model.instance import Instance
    from ..schedule.ir import Schedule

EXAMPLES = """\
examples:
  mks check models/kimi_k3.mks
  mks check models/qwen38.mks --target tpu7x --json
  mks check models/qwen38.mks --checkpoint ~/Qwen3.8-27B       # do the sizes agree?
  mks check models/qwen38.mks --config config.json --adopt     # take the sizes from there
  mks check tiny.mks --size layers=2 --size d=64

exit status: 0 fine, 1 errors, 2 wrong usage
"""


def main(argv: list[str]) -> int:
    """Check a definition and its schedules."""
    parser = argparse.ArgumentParser(
        "mks check",
        description="Report all errors of a definition, and for each schedule its memory, traffic and roofline time.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--target", metavar="T", help="only schedules for this target; without one, an unsharded one")
    parser.add_argument("--compile", action="store_true", help="compile each schedule, and show what it takes then")
    return check(parsed(parser, argv))


def parsed(parser: argparse.ArgumentParser, argv: list[str]) -> argparse.Namespace:
    """Adds what every command takes that looks at a definition's schedules, and parses."""
    parser.add_argument("file", metavar="FILE", help="a .mks file, or - for standard input")
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
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args(argv)
    if args.adopt and args.config is None and args.checkpoint is None:
        parser.error("--adopt takes the sizes from --config or --checkpoint; neither is given")
    return args


@define
class Answer:
    """What is said of a file; `texts` and `schedules` tell the same, for people and for programs."""

    found: list[Diagnostic] = field(factory=list)
    texts: list[str] = field(factory=list)
    schedules: list[dict[str, Any]] = field(factory=list)

    @property
    def status(self) -> int:
        """1 with errors, else 0."""
        return int(any(d.severity == "error" for d in self.found))


def check(args: argparse.Namespace) -> int:
    """Check, print, and return the exit status."""
    source = given(args.file)
    answer = Answer()
    if isinstance(source, Diagnostic):
        answer.found.append(source)
    else:
        examine(source, args, answer)
    found = ordered(answer.found)
    if args.json:
        said = {"file": args.file, "diagnostics": [as_json(d) for d in found], "schedules": answer.schedules}
        print(json.dumps(said, indent=2))
        return answer.status
    print(render_all(found, style_for(sys.stdout)), end="")
    print("\n\n".join([*answer.texts, *([] if found else [f"{args.file}: {summary(found)}"])]))
    return answer.status


def given(file: str) -> Source | Diagnostic:
    """The text of a file, or of standard input; or why it cannot be read."""
    return decode_source("<stdin>", sys.stdin.buffer.read()) if file == "-" else read_source(file)


def examine(source: Source, args: argparse.Namespace, answer: Answer) -> None:
    """Resolve a definition, at other sizes if asked for, and report its schedules."""
    made = resolved(source, args, answer.found)
    if made is None:
        return
    definition, instances = made
    for key in definition.own_schedules:
        schedule, instance = definition.schedules.get(key), instances.get(key[0])
        if schedule is None or instance is None:
            continue
        if args.schedule in (None, schedule.name) and args.target in (None, schedule.target.name):
            resized = instance is not definition.instances[key[0]]
            why = misfits(schedule, instance) if resized else []
            if why:
                _inapplicable(schedule, why, answer)
                continue
            _report(schedule, instance, answer, args.compile)
            _program(schedule, instance, resized, answer)
    if answer.schedules or answer.status or not (args.schedule or args.target):
        return
    if args.schedule:
        answer.found.append(none_chosen(definition, args.file, *(x for x in (args.schedule, args.target) if x)))
    else:
        _unsharded(definition, instances, args.target, answer, args.compile)


def resolved(source: Source, args: argparse.Namespace, found: list[Diagnostic]) -> (
        tuple[Definition, dict[str, Instance]] | None):  # fmt: skip
    """A definition and its models at the sizes asked for; nothing where the config cannot be read."""
    from ..compile import check_source

    config = read_config(args.config or args.checkpoint / "config.json") if args.config or args.checkpoint else None
    definition = check_source(source)
    found.extend(definition.diagnostics)
    if isinstance(config, Diagnostic):
        found.append(config)
        return None
    instances = dict(definition.instances)
    if config is not None or args.size:
        for name in set(definition.main) & set(instances):
            _resize(name, instances, config, args, found)
    return definition, instances


def _resize(
    name: str, instances: dict[str, Instance], config: Any, args: argparse.Namespace, found: list[Diagnostic]
) -> None:
    """Replace an instance by one at the sizes asked for; none where they do not fit."""
    from ..model.instantiate import instantiate
    from ..model.proofs import check_instance

    model = instances.pop(name).model
    made, wrong = instantiate(model, config=config, overrides=args.size, adopt=args.adopt)
    sink = Sink(wrong)
    if made is not None and check_instance(made, sink):
        instances[name] = made
        if args.checkpoint is not None:
            sink.found.extend(compared(made, args.checkpoint, args.size))
    found.extend(sink.found)


def _inapplicable(schedule: Schedule, why: list[str], answer: Answer) -> None:
    """At other sizes than the text's, a schedule that does not divide them is left out."""
    answer.texts.append(f"schedule `{schedule.name}` is not applicable at these sizes: {'; '.join(why)}")
    answer.schedules.append({"name": schedule.name, "model": schedule.model.name, "not_applicable": why})


def _report(schedule: Schedule, instance: Instance, answer: Answer, compile_: bool) -> None:
    """A schedule's figures."""
    from ..report import report
    from .compiled import compiled

    sink = Sink(answer.found)
    made = report.report(schedule, instance, sink, compiled(schedule, instance, answer.found) if compile_ else None)
    answer.texts.append(report.as_text(made))
    answer.schedules.append(report.as_json(made))


def _program(schedule: Schedule, instance: Instance, resized: bool, answer: Answer) -> None:
    """What lowering finds; a line without effect is one only at the text's own sizes."""
    from ..program.effects import check_program

    answer.found.extend(check_program(schedule, instance, lines=not resized))


def misfits(schedule: Schedule, instance: Instance) -> list[str]:
    """Why a schedule does not divide the sizes of an instance."""
    from ..schedule.fits import check_shares

    tried = Sink()
    return [] if check_shares(schedule, instance, tried) else [d.message for d in tried.found]


def _unsharded(
    definition: Definition, instances: dict[str, Instance], target: str, answer: Answer, compile_: bool
) -> None:
    """What the models need of one core of a target that no schedule of theirs is for."""
    from ..schedule.ir import bare
    from ..schedule.targets import targets

    if target not in targets:
        helps = did_you_mean(target, targets)
        answer.found.append(Diagnostic("E201", f"unknown target `{target}`", notes=(f"known: {', '.join(targets)}",),
                                       helps=helps))  # fmt: skip
        return
    contexts = [x.context for x in definition.schedules.values() if x is not None]
    for name in definition.main:
        if name in instances:
            made = bare(instances[name].model, targets[target], max(contexts, default=4096))
            _report(made, instances[name], answer, compile_)


def none_chosen(definition: Definition, file: str, *asked: str) -> Diagnostic:
    """E008: what was asked for, and what there is."""
    made = [definition.schedules.get(key) for key in definition.own_schedules]
    known = [f"`{x.name}` for {x.target.name}, rows {', '.join(map(str, x.rows))}" for x in made if x is not None]
    if not known:
        return Diagnostic("E008", f"{file} has no schedule", notes=("`target` and `context` alone are a complete one",))
    notes = (f"schedules: {'; '.join(known)}",)
    return Diagnostic("E008", f"no schedule of {file} matches {' and '.join(f'`{x}`' for x in asked)}", notes=notes)


def read_config(path: Path) -> dict[str, Any] | Diagnostic:
    """A checkpoint's `config.json`, or why it cannot be read."""
    source = read_source(path)
    if isinstance(source, Diagnostic):
        return source
    try:
        found = json.loads(source.text)
    except json.JSONDecodeError as e:
        return Diagnostic("E007", f"`{path}` is not JSON: {e.msg}", Label(Span(source, e.pos, e.pos + 1)))
    except ValueError:
        return Diagnostic("E007", f"`{path}` holds a number that is too long")
    except RecursionError:
        return Diagnostic("E007", f"`{path}` is nested too deep for a config")
    return found if isinstance(found, dict) else Diagnostic("E007", f"`{path}` is not a JSON object")
