"""Reads a packed model: the definition at its sizes, and each core's arrays as memory maps."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

from ..dsl.compile import check_source
from ..dsl.diagnostics import Diagnostic, MksError, Sink
from ..dsl.model.instance import Instance
from ..dsl.model.instantiate import instantiate
from ..dsl.model.proofs import check_instance
from ..dsl.program.lower import lower
from ..dsl.schedule.choose import choose_schedule
from ..dsl.schedule.fits import check_shares
from ..dsl.schedule.ir import Schedule
from ..dsl.source import Source
from ..dsl.text.files import read_regular
from . import packed_layout as layout
from .packed_layout import FORMAT, JOURNAL, KINDS, MANIFEST
from .packed_manifest import overrides
from .safetensors_file import SafeTensor, open_safetensors
from .tapes import Array

_CHUNK = 16 << 20
_AGAIN = ("pack the checkpoint again",)

# What a manifest says besides its format, as JSON holds it.
_FIELDS: dict[str, type] = {
    "mks": str, "name": str, "definition": str, "model": str, "schedule": str, "dtype": str, "sizes": dict,
    "plain": list, "target": str, "topology": list, "mesh": dict, "cores": int, "layout": str, "checkpoint": str,
    "arrays": dict, "files": list, "texts": list,
}  # fmt: skip

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
        """One of a core's operands: a read-only view of its file's map, which reads it when it is touched."""
        return self.tensors[core][name].array()

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
    said = _manifest(folder)
    if type(said.get("format")) is not int or said["format"] != FORMAT:
        message = f"`{folder}` has format {said.get('format')}; this version reads {FORMAT}"
        raise _error("E431", message, helps=_AGAIN)
    try:
        _check_kinds(said)
        instance, schedule = _rebuilt(folder, said)
        plain = _weights(said["plain"], instance)
        arrays = {name: (KINDS[a["dtype"]], tuple(a["shape"])) for name, a in said["arrays"].items()}
        names = [layout.core_file(core) for core in range(schedule.cores)]
        complete = [file["name"] for file in said["files"]] == names and all(
            file["crc32"].keys() == arrays.keys() and all(type(crc) is int for crc in file["crc32"].values())
            for file in said["files"]
        )
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as e:
        raise _error("E432", f"the manifest of `{folder}` is not whole", notes=(f"{type(e).__name__}: {e}",)) from None
    program = lower(schedule, instance, schedule.rows[0], plain)
    if layout.fingerprint(program) != said["layout"]:
        message = f"`{folder}` was packed for kernels that lay weights out in another way"
        raise _error("E431", message, notes=(f"it was packed by mks {said.get('mks')}",), helps=_AGAIN)
    expected = {a.name: (KINDS[a.dtype], a.shape) for a in layout.operands(program)}
    if not complete or arrays != expected:
        raise _error("E432", f"the manifest of `{folder}` is not whole", notes=("its arrays are not the schedule's",))
    sink, tensors = Sink(), []
    for name in names:
        found = open_safetensors(folder / name, sink)
        if found is not None and {n: (t.kind, t.shape) for n, t in found.items()} != expected:
            sink.report("E432", f"`{folder / name}` does not hold what the manifest says")
        tensors.append(found or {})
    if sink.failed:
        raise MksError(sink.found)
    return Packed(folder, said, instance, schedule, tuple(tensors), plain)


def verify(packed: Packed, progress: Progress | None = None) -> list[Diagnostic]:
    """Read everything and compare it with the checksums (E432), a few megabytes at a time."""
    sink, done = Sink(), 0
    for file, tensors in zip(packed.manifest["files"], packed.tensors, strict=True):
        for name, tensor in tensors.items():
            value, data = 0, memoryview(tensor.array().reshape(-1)).cast("B")
            for at in range(0, len(data), _CHUNK):
                value = zlib.crc32(data[at : at + _CHUNK], value)
                done += len(data[at : at + _CHUNK])
                if progress is not None:
                    progress(done, packed.nbytes)
            data.release()
            tensor.release()
            if value != file["crc32"][name]:
                sink.report("E432", f"`{packed.folder / file['name']}` is damaged: `{name}` has another checksum",
                            notes=(f"in the manifest {file['crc32'][name]}, in the file {value}",),
                            helps=_AGAIN)  # fmt: skip
    return sink.found


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        said = json.loads(read_regular(folder / MANIFEST))
    except FileNotFoundError:
        if (folder / JOURNAL).is_file():
            helps = ("start `mks pack` again as before: it goes on where it stopped",)
            raise _error("E430", f"`{folder}` is not finished", helps=helps) from None
        helps = ("`mks pack MODEL --checkpoint DIR -o FOLDER` makes one",)
        raise _error("E430", f"`{folder}` is no packed model", notes=(f"no `{MANIFEST}`",), helps=helps) from None
    except OSError as e:
        raise _error("E430", f"`{folder}` cannot be read: {e.strerror or e}") from None
    except (ValueError, RecursionError) as e:
        raise _error("E432", f"the manifest of `{folder}` is not JSON", notes=(str(e),)) from None
    if not isinstance(said, dict):
        raise _error("E432", f"the manifest of `{folder}` is not a JSON object")
    return said


def _check_kinds(said: dict[str, Any]) -> None:
    """Raises `ValueError` or `KeyError` where a field is not what `mks pack` writes."""
    wrong = [name for name, kind in _FIELDS.items() if type(said[name]) is not kind]
    wrong += [name for name in ("plain", "texts") if name not in wrong and any(type(x) is not str for x in said[name])]
    if wrong:
        raise ValueError(f"wrong kinds: {', '.join(f'`{name}`' for name in wrong)}")


def _rebuilt(folder: Path, said: dict[str, Any]) -> tuple[Instance, Schedule]:
    """The definition again, as it was packed; what is wrong with it is raised."""
    definition = check_source(Source(said["name"], said["definition"]), folder)
    if definition.failed:
        raise MksError(definition.diagnostics)
    model = definition.models[said["model"]]
    schedule = choose_schedule(definition.schedules, model, said["schedule"])
    if isinstance(schedule, Diagnostic):
        raise MksError([schedule])
    if said["dtype"] not in ("bf16", "f32"):
        raise ValueError(f"dtype {said['dtype']!r}")
    instance, found = instantiate(model, overrides=overrides(said["sizes"], model), working=said["dtype"])
    here = (schedule.target.name, list(schedule.topology), dict(schedule.mesh), schedule.cores)
    if here != (said["target"], said["topology"], said["mesh"], said["cores"]):
        raise ValueError("`target`, `topology`, `mesh` and `cores` are not the schedule's")
    sink = Sink()
    if instance is None or not check_instance(instance, sink) or not check_shares(schedule, instance, sink):
        raise MksError([*found, *sink.found])
    return instance, schedule


def _weights(names: Any, instance: Instance) -> frozenset[str]:
    """Names of weights. Raises `ValueError` for anything else."""
    if not isinstance(names, list) or not all(isinstance(n, str) and n in instance.model.weights for n in names):
        raise ValueError("`plain` is no list of weights")
    return frozenset(names)


def _error(code: str, message: str, *, notes: tuple[str, ...] = (), helps: tuple[str, ...] = ()) -> MksError:
    return MksError([Diagnostic(code, message, notes=notes, helps=helps)])
