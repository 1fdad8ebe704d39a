"""The files that `mks plan` writes: a Program's pictures, a trace of its step, and a page with both."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..text.files import write_whole

if TYPE_CHECKING:
    from ..program.ir import Program

GROUP = "mks.pictures"
_FILES = {
    "svg": "draw VMEM over the step, and a timeline of one layer of each kind",
    "trace": "write the whole step as a trace for Perfetto, in JSON",
    "html": "write a page with both drawings, the bill, and the source with what each line costs",
}


def add_pictures(parser: argparse.ArgumentParser) -> None:
    """An option for each kind of file."""
    for name, about in _FILES.items():
        parser.add_argument(f"--{name}", metavar="OUT", type=Path, help=about)


def asked(args: argparse.Namespace) -> dict[str, Path]:
    """The files that are to be written, by kind."""
    return {name: getattr(args, name) for name in _FILES if getattr(args, name) is not None}


def write(programs: Sequence[Program], args: argparse.Namespace) -> list[Path]:
    """Write them; of several Programs each has a file, with the schedule and the rows in its name.

    Raises OSError where a file cannot be written, is the definition or is asked for twice, or where the installation
    knows of nothing that draws.
    """
    from importlib.metadata import entry_points

    files = asked(args)
    if not files:
        return []
    outs = {
        (kind, i): _out(path, program, len(programs))
        for i, program in enumerate(programs)
        for kind, path in files.items()
    }
    taken = {Path(args.file).resolve()}
    for out in outs.values():
        if out.resolve() in taken:
            raise OSError(f"`{out}` would be written over the definition, or over another of these files")
        taken.add(out.resolve())
    for point in entry_points(group=GROUP):
        draw = point.load()
        for i, program in enumerate(programs):
            for kind, text in draw(program, args.position, tuple(files)).items():
                write_whole(outs[kind, i], text)
        return list(outs.values())
    raise OSError(f"nothing that draws is installed: no entry point in `{GROUP}`; install mks again")


def _out(path: Path, program: Program, several: int) -> Path:
    tokens = f"{'span' * program.consecutive}{program.rows}"
    name = f"{path.stem}-{program.schedule.name}-{tokens}{path.suffix}"
    return path if several == 1 else path.with_name(name)
