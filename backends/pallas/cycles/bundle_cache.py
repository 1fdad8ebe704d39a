"""Bundles that were counted, kept from one run to the next: counting compiles a kernel twice, for a minute or more."""

from __future__ import annotations

import json
from functools import cache
from hashlib import sha256
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from pathlib import Path

from attrs import asdict

from ....dsl.cache import cache_folder
from ....dsl.collectives import kinds
from ....dsl.model import ops as registry
from ....dsl.program import ir as p
from ....dsl.program.analysis.fingerprint import digest
from .bundles import Bundles, Row


def versions() -> dict[str, str]:
    """What a compiled program depends on, besides what it is made of."""
    result = {}
    for name in ("jax", "jaxlib", "libtpu"):
        try:
            result[name] = version(name)
        except PackageNotFoundError:
            result[name] = "absent"
    return result


def keep(program: p.Program, bundles: Bundles) -> None:
    """Keep what was counted; where nothing can be written, it is not."""
    path = _path(program)
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(_sealed(json.dumps(asdict(bundles))), "utf-8")
        part.replace(path)
    except OSError:
        return


def kept(program: p.Program) -> Bundles | None:
    """What was counted of this Program with the emitters and the compiler that are installed, or `None`."""
    try:
        text = _path(program).read_text("utf-8")
        _, _, counts = text.partition("\n")
        if text != _sealed(counts):
            return None
        record = json.loads(counts)
        rows = tuple(Row(**row) for row in record["rows"])
        return Bundles(record["total"], record["static"], rows, record["exact"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _sealed(counts: str) -> str:
    """Counts below their own hash, so that none are taken from a file that was damaged."""
    return f"{sha256(counts.encode()).hexdigest()}\n{counts}"


def _path(program: p.Program) -> Path:
    identity = json.dumps([digest(program), emitters(), versions()])
    return cache_folder() / "bundles" / f"{sha256(identity.encode()).hexdigest()}.json"


# What makes a kernel of a Program: folders of ours, and entry points of other packages.
MAKERS = ("backends/pallas", "backends/reference/ops", "dsl/collectives", "dsl/program/ir", "dsl/program/layout")
_GROUPS = (registry.REFERENCE, registry.PALLAS, kinds.GROUP, kinds.KERNELS)


@cache
def emitters() -> str:
    """A hash of the modules that make a kernel of a Program."""
    hashed, root = sha256(), Path(__file__).parents[3]
    for path in sorted(path for folder in MAKERS for path in (root / folder).rglob("*.py")):
        hashed.update(str(path.relative_to(root)).encode() + path.read_bytes())
    points = (point for group in _GROUPS for point in entry_points(group=group))
    for point in sorted(points, key=lambda point: (point.group, point.name)):
        hashed.update(f"{point.group} {point.name} {point.value}".encode() + _source(point))
    return hashed.hexdigest()


def _source(point: EntryPoint) -> bytes:
    """The file of its module; nothing of one that is not there or fails, as no kernel is made with it."""
    try:
        spec = find_spec(point.module)
    except (Exception, SystemExit):
        return b""
    return b"" if spec is None or spec.origin is None else Path(spec.origin).read_bytes()
