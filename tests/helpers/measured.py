"""What the TPU compiler says of Programs, kept from run to run: estimates can be changed without compiling again."""

from __future__ import annotations

import json
from hashlib import sha256

from attrs import asdict, frozen

from mks.backends.pallas.aot.measure import copies, measure
from mks.backends.pallas.cycles.bundle_cache import emitters, versions
from mks.dsl.cache import cache_folder
from mks.dsl.diagnostics import MksError
from mks.dsl.program import ir as p
from mks.dsl.program.analysis.fingerprint import digest


@frozen
class Measured:
    """Bytes of VMEM and HBM, and what is copied; or, with neither, the code and words of a refusal."""

    vmem: int = 0
    hbm: int = 0
    copies: tuple[str, ...] = ()
    code: str = ""
    said: str = ""


def measured(program: p.Program) -> Measured:
    """Of one core's step, for these emitters and this compiler."""
    key = sha256(json.dumps([digest(program), emitters(), versions()]).encode()).hexdigest()
    path = cache_folder() / "measured" / f"{key}.json"
    if path.exists():
        said = json.loads(path.read_text("utf-8"))
        return Measured(**said | {"copies": tuple(said["copies"])})
    found = _compiled(program)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(asdict(found)), "utf-8")
    part.replace(path)
    return found


def _compiled(program: p.Program) -> Measured:
    try:
        step = measure(program)
    except MksError as e:
        return Measured(code=e.diagnostics[0].code, said=e.diagnostics[0].message)
    return Measured(step.vmem, step.hbm, tuple(map(str, copies(program, step.compiled.hlo))))
