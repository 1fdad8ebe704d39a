"""Reads a packed model: the definition at its sizes, and each core's arrays as maps that are checked when taken."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

from attrs import field, frozen

from ...dsl.diagnostics import Diagnostic, MksError, Sink
from ...dsl.frontend import check_source
from ...dsl.model.check_instance import check_instance
from ...dsl.model.instance import Instance
from ...dsl.model.instantiate import instantiate
from ...dsl.program.lower.lower import lower
from ...dsl.schedule.choose import choose_schedule
from ...dsl.schedule.fits import check_shares
from ...dsl.schedule.ir import Schedule
from ...dsl.source import Source
from ..checkpoint.safetensors_file import SafeTensor
from . import layout as layout
from .check import check_texts, complete, damage, open_core
from .layout import JOURNAL, MANIFEST
from .manifest import overrides
from .read_manifest import AGAIN, check_kinds, packed_error, read_manifest
from .tapes import Array

# Called with the bytes compared so far and in all.
type Progress = Callable[[int, int], None]


@frozen
class Packed:
    """An opened folder, which is also where its text files are. `tensors` are each core's, by operand.

    `plain` names weights that it holds as plain numbers, whatever codec the definition has for them.
    """

    folder: Path
    manifest: Mapping[str, Any] = field(repr=False)
    instance: Instance
    schedule: Schedule
    tensors: tuple[Mapping[str, SafeTensor], ...] = field(repr=False)
    plain: frozenset[str] = frozenset()

    @property
    def nbytes(self) -> int:
        """Bytes of all cores' arrays."""
        return sum(tensor.nbytes for one in self.tensors for tensor in one.values())

    def operand(self, name: str, core: int) -> Array:
        """One of a core's operands, whose bytes have their checksums: a read-only view of its file's map.

        Raises `MksError` (E432) where they have not.
        """
        wrong = self.damage(name, core)
        if wrong is not None:
            raise MksError([wrong])
        return self.tensors[core][name].array()

    def damage(self, name: str, core: int) -> Diagnostic | None:
        """Whether an operand has another checksum than the manifest says; reads all of it."""
        file = self.manifest["files"][core]
        return damage(self.folder / file["name"], self.tensors[core][name], file["arrays"][name])

    def arrays(self, core: int) -> dict[str, Array]:
        """All of a core's operands, in the order of its file."""
        return {name: self.operand(name, core) for name in self.tensors[core]}


def is_packed(folder: Path) -> bool:
    """Whether a folder is a packed model, finished or not, and no checkpoint."""
    return (folder / MANIFEST).is_file() or (folder / JOURNAL).is_file()


def open_packed(folder: str | Path) -> Packed:
    """Open a folder that `mks pack` made; no weight is read yet.

    Raises `MksError`: E430 where it is no finished one, E431 where other versions made it, E432 where its files do not
    agree with its manifest, and what is wrong with a file by itself (E401, E403, E404, E406).
    """
    folder = Path(folder).expanduser()
    manifest = read_manifest(folder)
    try:
        check_kinds(manifest)
        instance, schedule = _rebuilt(folder, manifest)
        plain = _weights(manifest["plain"], instance)
        arrays = {name: (a["dtype"], tuple(a["shape"])) for name, a in manifest["arrays"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as e:
        raise _not_whole(folder, f"{type(e).__name__}: {e}") from None
    program = lower(schedule, instance, schedule.rows[0], plain)
    if layout.fingerprint(program) != manifest["layout"]:
        message = f"`{folder}` was packed with another weight layout than the kernels of this version have"
        raise packed_error("E431", message, notes=(f"it was packed by mks {manifest.get('mks')}",), helps=AGAIN)
    expected = layout.operands(program)
    try:
        whole = complete(manifest, expected, schedule.cores)
    except (KeyError, TypeError, AttributeError) as e:
        raise _not_whole(folder, f"{type(e).__name__}: {e}") from None
    if not whole or arrays != {a.name: (a.dtype, a.shape) for a in expected}:
        raise _not_whole(folder, "its arrays are not the schedule's")
    sink = Sink()
    check_texts(folder, manifest["texts"], sink)
    tensors = tuple(open_core(folder / file["name"], expected, file["header"], sink) for file in manifest["files"])
    if sink.failed:
        raise MksError(sink.diagnostics)
    return Packed(folder, manifest, instance, schedule, tensors, plain)


def verify(packed: Packed, progress: Progress | None = None) -> list[Diagnostic]:
    """Read everything and compare it with the checksums (E432), a thread for each core's file."""
    done, lock = 0, Lock()

    def one(core: int) -> list[Diagnostic]:
        nonlocal done
        problems = []
        for name, tensor in packed.tensors[core].items():
            problems.append(packed.damage(name, core))
            tensor.release()
            with lock:
                done += tensor.nbytes
                if progress is not None:
                    progress(done, packed.nbytes)
        return [wrong for wrong in problems if wrong is not None]

    with ThreadPoolExecutor(min(len(packed.tensors), os.cpu_count() or 1)) as pool:
        return [wrong for damaged in pool.map(one, range(len(packed.tensors))) for wrong in damaged]


def _rebuilt(folder: Path, manifest: dict[str, Any]) -> tuple[Instance, Schedule]:
    """The definition again, as it was packed; what is wrong with it is raised."""
    definition = check_source(Source(manifest["name"], manifest["definition"]), folder)
    if definition.failed:
        raise MksError(definition.diagnostics)
    model = definition.models[manifest["model"]]
    schedule = choose_schedule(definition.schedules, model, manifest["schedule"])
    if isinstance(schedule, Diagnostic):
        raise MksError([schedule])
    if manifest["dtype"] not in ("bf16", "f32"):
        raise ValueError(f"dtype {manifest['dtype']!r}")
    instance, diagnostics = instantiate(model, overrides=overrides(manifest["sizes"], model), working=manifest["dtype"])
    here = (schedule.target.name, list(schedule.topology), dict(schedule.mesh), schedule.cores)
    if here != (manifest["target"], manifest["topology"], manifest["mesh"], manifest["cores"]):
        raise ValueError("`target`, `topology`, `mesh` and `cores` are not the schedule's")
    sink = Sink()
    if instance is None or not check_instance(instance, sink) or not check_shares(schedule, instance, sink):
        raise MksError([*diagnostics, *sink.diagnostics])
    return instance, schedule


def _weights(names: Any, instance: Instance) -> frozenset[str]:
    """Names of weights. Raises `ValueError` for anything else."""
    if not isinstance(names, list) or not all(isinstance(n, str) and n in instance.model.weights for n in names):
        raise ValueError("`plain` is not a list of weights")
    return frozenset(names)


def _not_whole(folder: Path, note: str) -> MksError:
    return packed_error("E432", f"the manifest of `{folder}` is not whole", notes=(note,))
