"""Packs a checkpoint: every weight is read once, and each core's share of it written to where its kernels look.

Memory holds one weight, or of experts one matrix a core, and some blocks of its shares. After each layer the files are
flushed and a line of the journal says so; a run that was interrupted goes on from there. The manifest comes last:
without it a folder is unfinished.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any

from attrs import field, frozen

from ...dsl.diagnostics import Diagnostic, MksError
from ...dsl.program.ir import Program
from ..checkpoint.binding import Binding
from ..checkpoint.read import release
from . import checksums
from . import layout as layout
from .checksums import Running, sealed
from .journal import Journal, Sums
from .layout import MANIFEST, Piece
from .manifest import Job, manifest
from .operands import Experts, stored
from .tapes import Read
from .text_files import text_files

# Called with the bytes written so far and in all.
type Progress = Callable[[int, int], None]


@frozen
class Summary:
    """What was done: bytes of all cores' arrays, those written now, and whether an earlier run's work was kept."""

    folder: Path
    cores: int
    nbytes: int
    written: int
    resumed: bool


def pack_model(job: Job, binding: Binding, program: Program, folder: Path, progress: Progress) -> Summary:
    """Pack into `folder`, or go on where an earlier run of the same job stopped; nothing is done twice.

    Raises `MksError`: E433 where the folder holds anything else, E434 where it cannot be written, E427.
    """
    try:
        return _packed(job, binding, program, folder, progress)
    except OSError as e:
        raise MksError([_unwritable(e, folder)]) from e


def _packed(job: Job, binding: Binding, program: Program, folder: Path, progress: Progress) -> Summary:
    arrays, cores = layout.operands(program), program.schedule.cores
    first, starts = layout.header(arrays)
    size = len(first) + sum(a.nbytes for a in arrays)
    total = cores * (size - len(first))
    folder.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder)
    if journal.finished(job):
        return Summary(folder, cores, total, 0, True)
    done, finished = journal.resume(job, size)
    if not done:
        _check_room(folder, cores * size)
        journal.begin(job)
    with ExitStack() as stack:
        files = [stack.enter_context(_open(folder / layout.core_file(core), first, size)) for core in range(cores)]
        pool = stack.enter_context(ThreadPoolExecutor(min(cores, os.cpu_count() or 1)))
        units = [list(unit) for _, unit in groupby(layout.pieces(program), key=lambda piece: piece.layer)]
        written = dict.fromkeys((a.name for a in arrays), 0)
        for piece in (piece for unit in units[:done] for piece in unit):
            written[piece.array] += piece.nbytes
        sums = [
            _resumed(journal, one, file.fileno(), starts, written)
            for one, file in zip(finished or [{}] * cores, files, strict=True)
        ]
        writer = _Writer(binding, stored(binding), program, [file.fileno() for file in files], starts, sums, pool)
        before = at = cores * sum(written.values())
        for unit in units[done:]:
            for piece in unit:
                progress(at, total)
                writer.write(piece)
                at += cores * piece.nbytes
            list(pool.map(os.fdatasync, writer.files))
            journal.add(_lists(sums))
        progress(at, total)
    for running in (running for one in sums for running in one.values()):
        running.end()
    texts = text_files(binding.checkpoint)
    for name, data in texts.items():
        _store(folder / name, data)
    _store(folder / MANIFEST, sealed(manifest(job, arrays, first, _lists(sums), texts)))
    journal.end()
    return Summary(folder, cores, total, total - before, bool(done))


def _resumed(
    journal: Journal, finished: dict[str, list[str]], file: int, starts: dict[str, int], written: dict[str, int]
) -> dict[str, Running]:
    """A core's checksums so far; of a piece of which only a part is written, that part is read again."""
    resumed = {}
    for name, nbytes in written.items():
        resumed[name] = running = Running(list(finished.get(name, ())))
        whole = nbytes // checksums.PIECE * checksums.PIECE
        if len(running.done) * checksums.PIECE != whole:
            raise journal.torn()
        running.add(memoryview(_get(file, nbytes - whole, starts[name] + whole)))
    return resumed


def _lists(sums: list[dict[str, Running]]) -> Sums:
    return [{name: running.done for name, running in one.items()} for one in sums]


@frozen
class _Writer:
    """Writes pieces of all cores at once; `sums` are their checksums so far, by core and array."""

    binding: Binding
    read: Read
    program: Program
    files: list[int]
    starts: dict[str, int]
    sums: list[dict[str, Running]]
    pool: ThreadPoolExecutor = field(repr=False)

    def write(self, piece: Piece) -> None:
        """Read a piece's weights, write every core's share, and forget them."""
        blocks: dict[tuple[str, int | None], Any] = {}
        for weight in piece.weights:
            layer = None if self.program.instance.model.weights[weight].part is None else piece.layer
            blocks[weight, layer] = self.read(weight, layer)

        def one(core: int) -> None:
            at, running = self.starts[piece.array] + piece.begin, self.sums[core][piece.array]
            for block in piece.blocks(lambda name, layer: blocks[name, layer], core):
                data = memoryview(block).cast("B")
                running.add(data)
                at += _put(self.files[core], data, at)

        list(self.pool.map(one, range(len(self.files))))
        for (weight, layer), array in blocks.items():
            if isinstance(array, Experts):
                array.release()
            else:
                release(self.binding, weight, layer)


def _put(file: int, data: memoryview, at: int) -> int:
    """Write all of it; the system may take less at a time."""
    done = 0
    while done < len(data):
        done += os.pwrite(file, data[done:], at + done)
    return done


def _get(file: int, nbytes: int, at: int) -> bytearray:
    """Bytes of a file; fewer where it ends."""
    buffer = bytearray()
    while len(buffer) < nbytes and (read := os.pread(file, nbytes - len(buffer), at + len(buffer))):
        buffer += read
    return buffer


def _open(path: Path, first: bytes, size: int) -> Any:
    """A core's file with its header, all of its room taken beforehand."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)
    try:
        os.posix_fallocate(file.fileno(), 0, size)
        os.truncate(file.fileno(), size)
        _put(file.fileno(), memoryview(first), 0)
    except OSError:
        file.close()
        raise
    return file


def _store(path: Path, data: bytes) -> None:
    """A small file, there as a whole or not at all."""
    beside = path.with_name(f"{path.name}.part")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _check_room(folder: Path, needed: int) -> None:
    present = sum(file.stat().st_size for file in folder.glob("core-*.safetensors"))
    free = shutil.disk_usage(folder).free + present
    if needed > free:
        raise MksError(
            [
                Diagnostic(
                    "E434",
                    f"`{folder}` has no room for the packed model",
                    notes=(f"needed: {needed / 1e9:.2f} GB; free: {free / 1e9:.2f} GB",),
                )
            ]
        )


def _unwritable(error: OSError, folder: Path) -> Diagnostic:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    what = "has no room for the packed model" if full else "cannot be written"
    helps = ("make room and start the same command again: it goes on where it stopped",) if full else ()
    where = "" if error.filename is None else f"{error.filename}: "
    return Diagnostic("E434", f"`{folder}` {what}", notes=(f"{where}{error.strerror or error}",), helps=helps)
