"""A compiled step on a host with the TPUs that it was compiled for: loaded, and not compiled again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jax.sharding import Mesh

from ....dsl.diagnostics import Diagnostic, MksError
from ....dsl.program import ir as p
from ..aot import compiler
from ..emit.shard_map import Step, arguments

# From what was kept and a mesh's devices, in its order, to what can be called.
type Loader = Callable[[compiler.Saved, tuple[Any, ...]], Step]


def load_step(path: Path, program: p.Program, mesh: Mesh, loader: Loader = compiler.load) -> Step:
    """A Program's step from the file that `compiler.save` wrote; states and caches that it is given are donated.

    Only for files that can be trusted. Raises `MksError`: E507 where there is no executable, E508 where it takes other
    arguments than the Program, E509 where these devices do not take it.
    """
    try:
        saved = compiler.read(path)
    except Exception as e:  # whatever a pickle that is none raises
        raise _error("E507", f"`{path}` is no executable", (_shown(e),)) from e
    wanted = compiler.shapes((arguments(program, mesh), {}))
    if saved.shapes != wanted:
        name = next(name for name in {**wanted, **saved.shapes} if wanted.get(name) != saved.shapes.get(name))
        notes = (f"`{name}` is {saved.shapes.get(name, 'nothing')} there, and {wanted.get(name, 'nothing')} here",)
        raise _error("E508", f"`{path}` takes other arguments than it would be given", notes)
    devices = tuple(mesh.devices.flat)
    try:
        return loader(saved, devices)
    except Exception as e:  # whatever the runtime raises, it is about this file and these devices
        kind, schedule = devices[0].device_kind, program.schedule
        needed = f"{len(devices)} of {schedule.target.name} {'x'.join(map(str, schedule.topology))}"
        here = f"it was compiled for {needed}; here are {len(devices)} of `{kind}`"
        raise _error("E509", f"`{path}` cannot be loaded on this host", (here, f"the runtime: {_shown(e)}")) from e


def unfit_host(folder: str, manifest: Mapping[str, Any], devices: tuple[Any, ...]) -> list[Diagnostic]:
    """E509 where a host's TPUs are too few for what a folder's manifest says, or none; it is in `folder`."""
    cores = manifest["cores"]
    if len(devices) >= cores:
        return []
    here = f"{len(devices)} of `{devices[0].device_kind}`" if devices else "no TPU"
    kernel = f"{cores} core{'s' * (cores > 1)} of {manifest['target']}"
    helps = () if devices else ("without --compiled, `--backend pallas` interprets the kernels here, to check them",)
    return [Diagnostic("E509", f"`{folder}` was compiled for {kernel}, and this host has {here}", helps=helps)]


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition('\n')[0][:300]}"


def _error(code: str, message: str, notes: tuple[str, ...]) -> MksError:
    return MksError([Diagnostic(code, message, notes=notes)])
