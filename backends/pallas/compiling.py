"""A Program's whole step, compiled for the machine of its schedule: what it takes, and what XLA copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import prod

import jax
from attrs import frozen

from ...dsl.diagnostics import Diagnostic, Label, MksError
from ...dsl.program import ir as p
from . import hlo
from .ahead import Compiled, Machine, compile_ahead, meshed
from .call import Flavour, operands, states
from .failures import diagnose, explain_failure
from .places import place_of
from .sharded import arguments, jitted

_HLO_TYPES = {"float32": "f32", "bfloat16": "bf16", "int32": "s32"}


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
    made = measure(program)
    if moved := copies(program, made.compiled.hlo):
        at = Label(program.schedule.span)
        raise MksError([
            Diagnostic("E506", f"the compiled step copies {_named(program, move)} each time it runs", at,
                       notes=(str(move), "this is a fault of mks, not of the definition"))
            for move in moved
        ])  # fmt: skip
    return made


def measure(program: p.Program) -> Step:
    """The same, whatever the compiler copies.

    Raises MksError: as `ahead.machine` does; E503 to E505 where the compiler refuses, with the place in the definition,
    and what it raised as the cause.
    """
    here, mesh = meshed(program.schedule)
    flavour = Flavour(vmem=int(program.schedule.target.vmem.value))
    try:
        with _whole_tracebacks():
            made = compile_ahead(jitted(program, flavour, mesh), arguments(program, mesh), here, program.schedule.axes)
    except MksError:
        raise
    except Exception as e:  # whatever the compiler raises, it is about this step
        found = place_of(e, program)
        raise MksError([diagnose(explain_failure(e), found.span, found.part)]) from e
    vmem = max(kernel.vmem for kernel in hlo.kernels(made.hlo))
    return Step(program, here, made, vmem, made.memory.total)


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
    """Moves of whole operands in compiled HLO: of their shapes, or as large as the smallest tape, table or cache."""
    given = operands(program) | states(program)
    shapes = set(map(_shape, given.values()))
    large = {a.name for a in program.arrays.values() if a.kind in ("table", "cache", "bank")}
    held = [a for name, a in given.items() if name.startswith("tape ") or name.removeprefix("array ") in large]
    least = min((prod(a.shape) * a.dtype.itemsize for a in held), default=0)
    return tuple(move for move in hlo.moves(text)
                 if move.nbytes >= least or (move.array.dtype, _squeezed(move.array.shape)) in shapes)  # fmt: skip


def _named(program: p.Program, move: hlo.Move) -> str:
    """The operands that it may be."""
    moved = move.array.dtype, _squeezed(move.array.shape)
    names = [name for name, a in (operands(program) | states(program)).items() if _shape(a) == moved]
    return " or ".join(f"`{name}`" for name in names) or "an operand"


def _shape(array: jax.ShapeDtypeStruct) -> tuple[str, tuple[int, ...]]:
    return _HLO_TYPES.get(array.dtype.name, array.dtype.name), _squeezed(array.shape)


def _squeezed(shape: Iterable[int]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)
