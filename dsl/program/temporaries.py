"""What the TPU compiler takes of VMEM besides what a kernel declares: room for values that no register holds.

The compiler schedules each region of straight code by itself: the call, the body of a loop, a branch. It loads a
matrix' tiles as early as it can, up to a number that depends on the chip, and spills what registers do not hold. A
spilled register takes 4 KiB, and a region inside another adds to what is spilled around it. So the estimate is, along
the worst path from the call inwards, a number of registers for the largest product of each region, or for attention or
the delta rule. The numbers are above all that was measured: random schedules compiled ahead of time by libtpu 0.0.52
(the slow test of the bill prints how far above).

The truth is often lower, by up to 1 MiB in a small kernel, and no rule was found that says when. The compiler's own
lists of allocations show regions with the same matrices that spill nothing in one kernel and 70 registers in another;
and it puts what it spills, and buffers too, where other buffers are dead, which saves most with many rows.
"""

from __future__ import annotations

from ..records import frozen
from . import ir as p
from .work import rooms

REGISTER = 4096
_FREE = 64  # registers of a matrix that stay registers
_MOST = 192  # registers of f32 numbers that are as bad as any number of them
_ROWS_OF_REGISTER, _REGISTERS_OF_ROW = 8, 4  # of a tape
_SOFTMAXES = 14.0  # for each further eight heads of latent attention


@frozen
class Spills:
    """Registers that a target spills: in any kernel, by products of bf16 and f32, by attention, by the delta rule.

    A bf16 matrix of `full` registers is as bad as any larger one.
    """

    always: float
    bf16: float
    full: int
    f32: float
    attend: float
    delta: float


_BY_TARGET = {
    "v5e": Spills(10, 6, 256, 36, 26, 20),
    "v5p": Spills(10, 6, 256, 36, 26, 20),
    "v6e": Spills(10, 95, 512, 165, 14, 20),
    "tpu7x": Spills(10, 80, 256, 290, 26, 20),
}


def temporaries(program: p.Program) -> int:
    """Bytes, hardly ever below what the compiler takes."""
    spills = _BY_TARGET[program.schedule.target.name]
    return round(spills.always + sum(_region(program.body, program, spills))) * REGISTER


def _region(ops: tuple[p.Op, ...], program: p.Program, spills: Spills) -> tuple[float, float]:
    """Registers of a region's own products, and of the worst region inside."""
    own = inside = 0.0
    for op in ops:
        if isinstance(op, p.Dot | p.ExpertDot):
            own = max(own, _of_product(op, program, spills))
        elif isinstance(op, p.Attend):
            inside = max(inside, spills.attend * _of_tile(program.caches[op.ring], program) + _of_heads(op, program))
        elif isinstance(op, p.Compute):
            inside = max(inside, spills.delta * _heads(op, program))
        elif isinstance(op, p.Repeat | p.Experts):
            inside = max(inside, sum(_region(op.body, program, spills)))
        elif isinstance(op, p.Layers):
            inside = max(inside, sum(_layers(op, program, spills)))
    return own, inside


def _layers(op: p.Layers, program: p.Program, spills: Spills) -> tuple[float, float]:
    """A part that every layer runs belongs to the loop's body; one of several is a branch."""
    own = inside = 0.0
    for choice in op.choices:
        always = program.unconditional(choice)
        for _, body in choice.bodies:
            found = _region(body, program, spills)
            own = max(own, found[0] if always else 0.0)
            inside = max(inside, found[1] if always else sum(found))
    return own, inside


def _of_product(op: p.Dot | p.ExpertDot, program: p.Program, spills: Spills) -> float:
    if isinstance(op, p.ExpertDot):
        return spills.bf16
    product = program.products[op.product]
    registers = sum(product.tiling.runs[op.run].rows) // _ROWS_OF_REGISTER * _REGISTERS_OF_ROW
    if product.dtype == "f32":  # taken as three bf16 numbers each
        return spills.f32 * min(1.0, 3 * registers / _MOST)
    return spills.bf16 * min(1.0, max(0, registers - _FREE) / (spills.full - _FREE))


def _of_tile(ring: p.CacheRing, program: p.Program) -> float:
    """A tile of the keys of all heads, in units of 512 positions of one head of 128; f32 counts twice."""
    buffer = program.buffers[ring.buffers[0]]
    _, heads, tile, width = buffer.shape
    return heads * tile * width / (512 * 128) * (1 + (buffer.dtype == "f32"))


def _of_heads(op: p.Attend, program: p.Program) -> float:
    """Where all heads meet latents, the softmaxes of more than eight; f32 counts twice."""
    if len(op.queries) == 1:
        return 0.0
    heads, tile = program.buffers[op.queries[0]].shape[1], program.buffers[program.caches[op.ring].buffers[0]]
    return _SOFTMAXES * (-(-heads // _ROWS_OF_REGISTER) - 1) * (1 + (tile.dtype == "f32"))


def _heads(op: p.Compute, program: p.Program) -> int:
    """Heads of the delta rule."""
    heads = [program.shares.length(call.args[2].type.shape[0])
             for call, _ in rooms(op.node, program.shares, program.rows)]  # fmt: skip
    return max(heads, default=0)
