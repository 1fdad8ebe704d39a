"""What a packed folder says of itself, and what must agree for two runs to write the same one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

from attrs import frozen

from ...dsl.diagnostics import Diagnostic, MksError
from ...dsl.model.instance import Instance
from ...dsl.model.ir import Model
from ...dsl.model.static import Value
from ...dsl.program.ir import Program
from ...dsl.schedule.ir import Schedule
from ...dsl.source import Source
from ...dsl.text import syntax as s
from ...dsl.text.files import read_source
from ...dsl.text.parse import parse
from ...dsl.version import version
from ..checkpoint.binding import Binding
from ..checkpoint.tensors import Checkpoint
from . import checksums
from . import layout as layout
from .checksums import checksum
from .layout import Operand
from .operands import plain

_SAMPLE = 4096
_VERSION = re.compile(r"^[ \t]*mks[ \t]+\d+", re.MULTILINE)

# As `str` writes them; of what `Fraction` also reads, an exponent would take for ever.
_FRACTION = re.compile(r"-?[0-9]{1,400}(/[0-9]{1,400})?")


@frozen
class Job:
    """What is packed from what. `said` goes into the manifest; `files` are the checkpoint's, with size and time."""

    manifest: dict[str, Any]
    files: dict[str, list[int]]


def describe(source: Source, schedule: Schedule, binding: Binding, program: Program) -> Job:
    """A job's description. Raises `MksError` where a file that the definition uses is gone."""
    instance = program.instance
    described = {
        "format": layout.FORMAT,
        "name": Path(source.name).name,
        "definition": self_contained(source),
        "model": schedule.model.name,
        "schedule": schedule.name,
        "dtype": instance.working,
        "sizes": sizes(instance),
        "plain": sorted(plain(binding)),
        "target": schedule.target.name,
        "topology": list(schedule.topology),
        "mesh": dict(schedule.mesh),
        "cores": schedule.cores,
        "layout": layout.fingerprint(program),
        "checkpoint": fingerprint(binding.checkpoint),
    }
    files = {tensor.file for tensor in binding.checkpoint.tensors.values()}
    stats = {file: Path(file).stat() for file in sorted(files)}
    return Job(described, {Path(file).name: [stat.st_size, stat.st_mtime_ns] for file, stat in stats.items()})


def manifest(
    job: Job, arrays: tuple[Operand, ...], header: bytes, sums: list[dict[str, list[str]]], texts: Mapping[str, bytes]
) -> dict[str, Any]:
    """A finished folder's. Each core's file, which begins with `header`, stands for itself: a host may have a few."""
    return job.manifest | {
        "mks": version(),
        "checksums": {"kind": checksums.KIND, "piece": checksums.PIECE},
        "arrays": {a.name: {"dtype": a.dtype, "shape": list(a.shape)} for a in arrays},
        "files": [
            {"name": layout.core_file(core), "header": checksum(header), "arrays": one} for core, one in enumerate(sums)
        ],
        "texts": {name: checksum(data) for name, data in texts.items()},
    }


def self_contained(source: Source, done: set[Path] | None = None) -> str:
    """A definition's text with what it uses in the place of its `use` lines, each file once."""
    done = set() if done is None else done
    text = source.text
    for item in reversed(parse(source)[0].items):
        if isinstance(item, s.Use):
            path = Path(source.name).parent / item.path.value
            used = ""
            if path.resolve() not in done:
                done.add(path.resolve())
                read = read_source(path)
                if isinstance(read, Diagnostic):
                    raise MksError([read])
                used = _VERSION.sub("", self_contained(read, done), count=1).strip("\n")
            text = text[: item.span.start] + used + text[item.span.end :]
    return text


def sizes(instance: Instance) -> dict[str, Any]:
    """Sizes, constants and lists as JSON holds them; a fraction is a text."""
    names = (*instance.model.sizes, *instance.model.lists)
    values = {name: instance.values[name] for name in names}
    return {n: str(v) if isinstance(v, Fraction) else list(v) if isinstance(v, tuple) else v for n, v in values.items()}


def overrides(given: Mapping[str, Any], model: Model) -> dict[str, Value]:
    """The values again. Raises `ValueError`, `TypeError` or `ZeroDivisionError` for what are none."""
    values: dict[str, Value] = {}
    for name, value in given.items():
        if name not in model.lists:
            if isinstance(value, str) and not _FRACTION.fullmatch(value):
                raise ValueError(f"`{name}` is not a fraction: {value[:20]!r}")
            values[name] = Fraction(value) if isinstance(value, str) else value
        elif isinstance(value, list) and all(type(item) is int for item in value):
            values[name] = tuple(value)
        else:
            raise ValueError(f"`{name}` is not a list of whole numbers")
    return values


def fingerprint(checkpoint: Checkpoint) -> str:
    """Of the tensors' names, types and shapes, and of some of each one's numbers."""
    digest = sha256()
    with ExitStack() as stack:
        names = {tensor.file for tensor in checkpoint.tensors.values()}
        files = {name: stack.enter_context(Path(name).open("rb")) for name in names}
        for name, tensor in sorted(checkpoint.tensors.items()):
            digest.update(f"{name} {tensor.kind} {tensor.shape}\n".encode())
            for at in (0, tensor.nbytes // 2, max(0, tensor.nbytes - _SAMPLE)):
                files[tensor.file].seek(tensor.begin + at)
                digest.update(files[tensor.file].read(min(_SAMPLE, tensor.nbytes - at)))
    return digest.hexdigest()
