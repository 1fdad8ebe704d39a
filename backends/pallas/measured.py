"""What the compiler makes of a Program for a TPU that need not be attached."""

from __future__ import annotations

from attrs import frozen

from ...dsl.diagnostics import MksError
from ...dsl.program import ir as p
from . import ahead, hlo, sharded
from .call import Flavour
from .failures import diagnose, explain_failure


@frozen
class Measured:
    """`vmem` and `hbm` in bytes of one core, `seconds` of wall time."""

    vmem: int
    hbm: int
    seconds: float


def compile_program(program: p.Program) -> ahead.Compiled:
    """The step of all cores, compiled for the schedule's target; errors of the compiler come as they are.

    Raises MksError: E501 without libtpu, E502 for a topology that the compiler does not know.
    """
    schedule = program.schedule
    machine = ahead.machine(schedule.target, schedule.topology)
    axes = dict(schedule.mesh) or {"core": 1}
    mesh = machine.mesh(axes)
    step = sharded.build(program, Flavour(vmem=int(schedule.target.vmem.value)), mesh)
    return ahead.compile_ahead(step, sharded.arguments(program, mesh), machine, axes, donate=(3,))


def measure(program: p.Program) -> Measured:
    """What the compiled step takes.

    Raises MksError: E501 to E505, where it cannot be compiled.
    """
    try:
        made = compile_program(program)
    except MksError:
        raise
    except Exception as e:  # whatever lowering or compiling raises is sorted there
        raise MksError([diagnose(explain_failure(e), program.schedule.span)]) from e
    vmem = max(kernel.vmem for kernel in hlo.kernels(made.hlo))
    return Measured(vmem, made.memory.total, made.lower_s + made.compile_s)
