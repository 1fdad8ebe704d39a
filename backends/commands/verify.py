"""`mks verify`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from ...dsl.commands.argtypes import count, ids
from ...dsl.commands.sizes import add_sizes
from ...models.text.files import read_text_files
from ...models.text.tokenizer import load_tokenizer
from ..opening.cannot_open import CannotOpen
from ..opening.find import bind, checkpoint_place, find_model, find_schedule, text_place
from ..opening.load import values
from ..opening.load_pallas import host, sized
from .run_command import command_parser, guarded, itself
from .terminal import loading, warn, working
from .verify_report import described, show

if TYPE_CHECKING:
    from ...dsl.program.ir import Program
    from ...dsl.schedule.ir import Schedule
    from ...models.checkpoint.binding import Binding
    from ..pallas.diff_test.report import Verified
    from ..pallas.runtime.device import Machine

_ABOUT = """\
Compare each part of a schedule's megakernel with the reference, on a checkpoint's weights.

After every part of every layer, what the kernel holds is compared with what the
reference makes of the kernel's own input to that part, so that errors do not add up
and what is wrong stands by its name; then states, caches and ids. On a host without
a TPU the kernel is interpreted, on as many virtual devices as the schedule has cores.
"""
_EXAMPLES = """\
examples:
  mks verify qwen3 --checkpoint ~/Qwen3-0.6B --sizes config
  mks verify qwen38 --checkpoint tiny --sizes config --schedule ironwood4 --dtype bf16 --json
  mks verify qwen3.mks --checkpoint tiny --sizes config --tokens 5,6,7 --positions 0,1,2,300
  mks verify qwen3 --checkpoint tiny --sizes config --corrupt mlp      # must fail, and say mlp

exit status: 0 all alike, 1 a part differs or the ids do, 2 wrong usage
"""
# Without --positions, this many steps from the beginning, and one where attention has more than a tile behind it.
_STEPS, _LATER = 3, 300
_VIRTUAL = "--xla_force_host_platform_device_count"


def verify(argv: list[str]) -> int:
    """Compare each part of a megakernel with the reference; the exit status."""
    return guarded(make_parser().parse_args, argv, lambda args: _verify(args, argv))


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = command_parser("verify", _ABOUT, _EXAMPLES)
    add = parser.add_argument
    add("model", metavar="MODEL", help="a shipped definition's name, or a .mks file")
    add(
        "--checkpoint",
        metavar="DIR",
        type=Path,
        help="a Hugging Face folder or a GGUF file (default: the one that comes with the model)",
    )
    add("--schedule", metavar="NAME", help="which of the definition's schedules (default: its only one)")
    add("--sizes", choices=["config"], help="take the sizes from the checkpoint's config.json")
    add_sizes(parser)
    add(
        "--dtype",
        choices=["f32", "bf16", "auto"],
        default="f32",
        help="working type, which the model's bf16 stands for; auto is the "
        "narrowest that the checkpoint allows (default: %(default)s)",
    )
    add(
        "--rows",
        metavar="N",
        type=count,
        default=1,
        help="sequences at once, each a position further than the one before (default: %(default)s)",
    )
    add(
        "--positions",
        metavar="0,1,2,300",
        type=ids,
        help="the steps, by the first sequence's positions (default: one for each token, and a later one)",
    )
    tokens = parser.add_mutually_exclusive_group()
    tokens.add_argument(
        "--tokens",
        metavar="1,2,3",
        type=ids,
        help="what is read, from the start again if there are more steps (default: three ids)",
    )
    tokens.add_argument("--prompt", metavar="TEXT", help="the same as text, without the chat template")
    add(
        "--corrupt",
        metavar="NAME",
        help="first make a tile of a part's first product wrong, or of a weight, as in "
        "mlp or moe.down, to see that it is found",
    )
    add("--json", action="store_true", help="print one JSON object")
    return parser


def _verify(args: argparse.Namespace, argv: list[str]) -> int:
    """Raises `CannotOpen`, or `MksError` with all that is wrong."""
    from ...dsl.program.lower.lower import lower
    from ...models.packing.operands import plain

    definition, model, diagnostics = find_model(args.model)
    schedule = find_schedule(definition, model, args.schedule)
    path = checkpoint_place(args.model, args.checkpoint, diagnostics, loading)
    binding = bind(model, path, diagnostics, adopt=args.sizes == "config", sizes=args.size, dtype=args.dtype)
    steps = _steps(args, schedule, binding, path)
    last = max(max(positions) for _, positions in steps)
    lower(sized(schedule, binding.instance, args.rows, schedule.context), binding.instance, args.rows, plain(binding))
    machine = _machine(schedule)
    if machine is None:
        return _again(schedule, argv)
    warn(diagnostics)
    if machine.interpreted:
        # Interpreted, caches are copied whole at every step.
        schedule = evolve(schedule, context=min(schedule.context, -(-(last + 1) // 256) * 256))
    wanted = sized(schedule, binding.instance, args.rows, schedule.context)
    program = lower(wanted, binding.instance, args.rows, plain(binding), traced=True)
    begun = time.perf_counter()
    verified = _compared(args, binding, program, machine, steps)
    result = described(program, verified, interpreted=machine.interpreted, corrupt=args.corrupt)
    result["seconds"] = round(time.perf_counter() - begun, 3)
    print(json.dumps(result)) if args.json else show(program, verified, result)
    return 0 if verified.ok else 1


def _steps(
    args: argparse.Namespace, schedule: Schedule, binding: Binding, path: Path
) -> list[tuple[list[int], list[int]]]:
    """Tokens and positions of each row, step by step. Raises `CannotOpen` for what cannot be."""
    logits = binding.instance.model.decode.types["logits"]
    vocab, context = binding.instance.length(logits.shape[0]), schedule.context
    if args.prompt is not None:
        tokenizer = load_tokenizer(read_text_files(text_place(path)))
        if tokenizer is None:
            raise CannotOpen("the checkpoint has no tokenizer; give --tokens")
        tokens = tuple(tokenizer.encode(args.prompt))
    else:
        tokens = args.tokens or tuple((i + 1) * 7919 % vocab for i in range(_STEPS))
    if not tokens:
        raise CannotOpen("the prompt gives no tokens")
    if (wrong := next((token for token in tokens if not 0 <= token < vocab), None)) is not None:
        raise CannotOpen(f"`tokens` holds {wrong}; token ids run from 0 to {vocab - 1}")
    later = min(_LATER, context - args.rows)
    positions = args.positions or (*range(len(tokens)), *((later,) if later >= len(tokens) else ()))
    if max(positions) + args.rows > context:
        raise CannotOpen(f"position {max(positions) + args.rows - 1} is beyond the schedule's context, {context}")
    rows = range(args.rows)
    return [
        ([tokens[(i + row) % len(tokens)] for row in rows], [at + row for row in rows])
        for i, at in enumerate(positions)
    ]


def _machine(schedule: Schedule) -> Machine | None:
    """This host's cores; `None` where it takes another process to have virtual ones. Raises `CannotOpen`."""
    from ..reference.compilation import keep_compiled

    keep_compiled()
    try:
        return host(schedule)
    except CannotOpen:
        import jax

        if jax.default_backend() == "tpu" or _VIRTUAL in os.environ.get("XLA_FLAGS", ""):
            raise
        return None


def _again(schedule: Schedule, argv: list[str]) -> int:
    """The same command in a process with as many virtual devices as the schedule has cores; its exit status."""
    print(
        f"note: schedule `{schedule.name}` is for {schedule.cores} cores: going on in a process with as many virtual "
        "devices",
        file=sys.stderr,
        flush=True,
    )
    flags = f"{os.environ.get('XLA_FLAGS', '')} {_VIRTUAL}={schedule.cores}".strip()
    return subprocess.run(itself("verify", *argv), env=os.environ | {"XLA_FLAGS": flags}, check=False).returncode


def _compared(
    args: argparse.Namespace,
    binding: Binding,
    program: Program,
    machine: Machine,
    steps: list[tuple[list[int], list[int]]],
) -> Verified:
    import jax

    from ...dsl.diagnostics import did_you_mean
    from ...models.packing.operands import operand, stored
    from ..pallas.diff_test.compare import verify as compare
    from ..pallas.diff_test.fault_injection import corrupted, names
    from ..reference.loading import load as reference_weights

    given = partial(operand, program, stored(binding))
    if args.corrupt is not None and args.corrupt not in names(program):
        near = did_you_mean(args.corrupt, names(program))
        raise CannotOpen(f"nothing multiplies in `{args.corrupt}`{': ' if near else ''}{''.join(near)}")
    with loading(f"Loading {program.schedule.model.name}") as progress, jax.default_device(jax.devices("cpu")[0]):
        weights = reference_weights(binding.instance, values(binding, progress), binding.same)
    operands = given if args.corrupt is None else corrupted(program, given, args.corrupt)
    with working(f"Comparing {len(steps)} steps"):
        return compare(program, operands, machine, weights, steps)
