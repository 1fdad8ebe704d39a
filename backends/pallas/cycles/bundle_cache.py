"""Bundles that were counted, kept from one run to the next: counting compiles a kernel twice, for a minute or more."""

from __future__ import annotations

import json
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from attrs import asdict

from ....dsl.cache import cache_folder
from ....dsl.program import ir as p
from ....dsl.program.analysis.fingerprint import digest
from .bundles import Bundles, Row


def versions() -> dict[str, str]:
    """What a compiled program depends on, besides what it is made of."""
    found = {}
    for name in ("jax", "jaxlib", "libtpu"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found


def keep(program: p.Program, found: Bundles) -> None:
    """Keep what was counted; where nothing can be written, it is not."""
    path = _path(program)
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(_sealed(json.dumps(asdict(found))), "utf-8")
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
        said = json.loads(counts)
        rows = tuple(Row(**row) for row in said["rows"])
        return Bundles(said["total"], said["static"], rows, said["exact"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _sealed(counts: str) -> str:
    """Counts below their own hash, so that none are taken from a file that was damaged."""
    return f"{sha256(counts.encode()).hexdigest()}\n{counts}"


def _path(program: p.Program) -> Path:
    said = json.dumps([digest(program), emitters(), versions()])
    return cache_folder() / "bundles" / f"{sha256(said.encode()).hexdigest()}.json"


@cache
def emitters() -> str:
    """What makes a kernel of a Program."""
    found, folder = sha256(), Path(__file__).parent
    for path in sorted(folder.rglob("*.py")):
        found.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return found.hexdigest()
