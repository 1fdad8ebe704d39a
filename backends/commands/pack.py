"""`mks pack`."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...dsl.commands.sizes import add_sizes
from ...dsl.diagnostics import MksError, Sink
from ..opening.find import bind, checkpoint_place, find_model, find_schedule
from .run_command import command_parser, guarded
from .terminal import loading, warn

if TYPE_CHECKING:
    from ...dsl.program.ir import Program
    from ...dsl.source import Source
    from ...models.checkpoint.binding import Binding
    from ...models.packing.packed import Packed

_EXAMPLES = """\
examples:
  mks pack qwen38 --checkpoint ~/Qwen3.8-27B --sizes config -o packed
  mks pack qwen3.mks --checkpoint ~/Qwen3-0.6B --sizes config --schedule one --dtype bf16 -o packed --verify
  mks pack --check packed                    # is every byte as it was packed? no checkpoint is needed

what was interrupted goes on with the same command
"""


def pack(argv: list[str]) -> int:
    """Write a checkpoint as the kernels of a schedule read it; the exit status."""
    return guarded(_parsed, argv, _pack)


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    about = "Write a checkpoint as a schedule's kernels read it: for each core one file, in the order of use."
    parser = command_parser("pack", about, _EXAMPLES)
    add = parser.add_argument
    add("model", metavar="MODEL", nargs="?", help="a shipped definition's name, or a .mks file")
    add(
        "--checkpoint",
        metavar="DIR",
        type=Path,
        help="a Hugging Face folder or a GGUF file (default: the one that comes with the model)",
    )
    add("-o", "--output", metavar="DIR", type=Path, help="the folder to write")
    add("--check", metavar="DIR", type=Path, help="pack nothing: compare all of a packed folder with its checksums")
    add("--schedule", metavar="NAME", help="which of the definition's schedules (default: its only one)")
    add("--sizes", choices=["config"], help="take the sizes from the checkpoint's config.json")
    add_sizes(parser)
    add(
        "--dtype",
        choices=["f32", "bf16", "auto"],
        default="auto",
        help="working type, which the model's bf16 stands for; auto is the "
        "narrowest that the checkpoint allows (default: %(default)s)",
    )
    add("--verify", action="store_true", help="read everything back and compare it with its checksums")
    add("--json", action="store_true", help="print one JSON object: folder, cores, bytes, written, resumed, seconds")
    return parser


def _parsed(argv: list[str]) -> argparse.Namespace:
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.check is not None:
        given = [
            word for word in ("model", "output", "checkpoint", "schedule", "sizes", "verify") if getattr(args, word)
        ]
        if given or args.size or args.dtype != "auto":
            parser.error("--check DIR looks at a packed folder, and takes nothing else but --json")
    elif args.model is None or args.output is None:
        parser.error("MODEL and -o DIR are needed, or --check DIR")
    return args


def _pack(args: argparse.Namespace) -> None:
    """Pack or check, print what was done. Raises `CannotOpen`, or `MksError` with all that is wrong."""
    if args.check is not None:
        _check(args.check.expanduser(), args.json)
        return
    source, binding, program = _lowered(args)
    # What follows takes a while to import, and what is wrong with a definition is said before.
    from ...models.packing.manifest import describe
    from ...models.packing.pack import pack_model

    begun = time.perf_counter()
    folder = args.output.expanduser()
    job = describe(source, program.schedule, binding, program)
    with loading(f"Packing {program.schedule.model.name}") as progress:
        done = pack_model(job, binding, program, folder, progress)
    if args.verify:
        _read_back(folder)
    _report(
        args,
        {
            "folder": str(folder),
            "model": program.schedule.model.name,
            "schedule": program.schedule.name,
            "dtype": program.instance.working,
            "cores": done.cores,
            "bytes": done.nbytes,
            "written": done.written,
            "resumed": done.resumed,
            "verified": args.verify,
            "seconds": round(time.perf_counter() - begun, 3),
        },
    )


def _check(folder: Path, as_json: bool) -> None:
    begun = time.perf_counter()
    packed = _read_back(folder)
    result = {
        "folder": str(folder),
        "model": packed.schedule.model.name,
        "schedule": packed.schedule.name,
        "cores": packed.schedule.cores,
        "bytes": packed.nbytes,
        "seconds": round(time.perf_counter() - begun, 3),
    }
    print(
        json.dumps(result)
        if as_json
        else f"{folder} is as it was packed: {packed.nbytes / 1e9:.2f} GB of "
        f"`{result['model']}` for {result['cores']} cores, its manifest and its text files"
    )


def _read_back(folder: Path) -> Packed:
    """Every byte of a packed folder has its checksum. Raises `MksError` with all that is damaged."""
    from ...models.packing.packed import open_packed, verify

    packed = open_packed(folder)
    with loading(f"Reading {folder}") as progress:
        wrong = verify(packed, progress)
    if wrong:
        raise MksError(wrong)
    return packed


def _lowered(args: argparse.Namespace) -> tuple[Source, Binding, Program]:
    from ...dsl.program.lower.lower import lower
    from ...dsl.schedule.fits import check_shares
    from ...models.packing.operands import plain

    definition, model, diagnostics = find_model(args.model)
    schedule = find_schedule(definition, model, args.schedule, diagnostics)
    path = checkpoint_place(args.model, args.checkpoint, diagnostics, loading)
    binding = bind(model, path, diagnostics, adopt=args.sizes == "config", sizes=args.size, dtype=args.dtype)
    sink = Sink()
    if not check_shares(schedule, binding.instance, sink):
        raise MksError([*diagnostics, *sink.diagnostics])
    program = lower(schedule, binding.instance, schedule.rows[0], plain(binding))
    warn(diagnostics)
    return definition.file.source, binding, program


def _report(args: argparse.Namespace, result: dict[str, Any]) -> None:
    if args.json:
        print(json.dumps(result))
        return
    if not result["written"]:
        print(f"{result['folder']} is packed already: {result['bytes'] / 1e9:.2f} GB for {result['cores']} cores")
        return
    resumed = ", the rest by an earlier run" if result["resumed"] else ""
    rate = result["written"] / 1e9 / max(result["seconds"], 1e-9)
    print(
        f"packed {result['model']} for `{result['schedule']}` into {result['folder']}: "
        f"{result['bytes'] / 1e9:.2f} GB for "
        f"{result['cores']} cores, {result['written'] / 1e9:.2f} GB of it in {result['seconds']:.1f} s "
        f"({rate:.2f} GB/s){resumed}"
    )
