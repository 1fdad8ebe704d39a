"""A Program's whole step, compiled for the machine of its schedule: what it takes, and what XLA copies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

import jax
from attrs import frozen

from ....dsl.diagnostics import Diagnostic, Label, MksError
from ....dsl.program import ir as p
from ..emit.call import BuildMode
from ..emit.scopes import place_of
from ..emit.shard_map import arguments, jitted
from ..emit.signature import operands, states
from . import hlo
from .compiler import Compiled, Machine, compile_ahead, meshed
from .failures import diagnose, explain_failure


@frozen
class Step:
    """A compiled step. Bytes of one core: `vmem` is what the compiler used, `hbm` what is held while it runs."""

    program: p.Program
    machine: Machine
    compiled: Compiled
    vmem: int
    hbm: int


def compile_step(program: p.Program) -> Step:
    """Compile kernel and commit for all cores of the schedule's mesh.

    Raises MksError: as `measure` does; E506 where the compiler copies a weight, state or cache.
    """
    compiled = measure(program)
    if moved := copies(program, compiled.compiled.hlo):
        at = Label(program.schedule.span)
        raise MksError(
            [
                Diagnostic(
                    "E506",
                    f"the compiled step copies `{_name(move)}` each time it runs",
                    at,
                    notes=(str(move), "this is a fault of mks, not of the definition"),
                )
                for move in moved
            ]
        )
    return compiled


def measure(program: p.Program) -> Step:
    """The same, whatever the compiler copies.

    Raises MksError: as `compiler.machine` does; E503 to E505 where the compiler refuses, with the place in the
    definition, and what it raised as the cause.
    """
    here, mesh = meshed(program.schedule)
    build_mode = BuildMode(vmem=int(program.schedule.target.memory.vmem.value))
    try:
        with _whole_tracebacks():
            compiled = compile_ahead(
                jitted(program, build_mode, mesh), arguments(program, mesh), here, program.schedule.axes
            )
    except MksError:
        raise
    except Exception as e:  # whatever the compiler raises, it is about this step
        place = place_of(e, program)
        raise MksError([diagnose(explain_failure(e), place.span, place.part)]) from e
    vmem = max(kernel.vmem for kernel in hlo.kernels(compiled.hlo))
    return Step(program, here, compiled, vmem, compiled.memory.total)


@contextmanager
def _whole_tracebacks() -> Iterator[None]:
    """Keep JAX's own frames in tracebacks: they know in which scope an operation is that cannot be lowered."""
    before = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", "off")
    try:
        yield
    finally:
        jax.config.update("jax_traceback_filtering", before)


def copies(program: p.Program, text: str) -> tuple[hlo.Move, ...]:
    """Moves of whole operands in compiled HLO: of the buffers that hold weights, states and caches."""
    names = operands(program).keys() | states(program).keys()
    moved = [move for move in hlo.moves(text) if _name(move) in names]
    return tuple(move for move in moved if move.whole and prod(move.array.shape) >= prod(move.whole.shape))


def _name(move: hlo.Move) -> str:
    """The operand as a Program names it: the last key of JAX's name for an argument, `values[3]['mla.keys']`."""
    match = re.search(r"\[\\?'(.*?)\\?'\]$", move.operand)
    return match[1] if match else ""
