"""What the TPU compiler takes of VMEM besides what a kernel declares: room for values that no register holds.

The compiler schedules each region of straight code by itself: the call, the body of a loop, a branch. It loads a
matrix' tiles as early as it can, up to a number that depends on the chip, and spills what registers do not hold. A
spilled register takes 4 KiB, and a region inside another adds to what is spilled around it. So the estimate is, for
each depth of nesting, a number of registers times how much of a matrix the largest product of that depth has at hand,
and more for attention and for the delta rule. The numbers are the least that were above all of some 300 random
schedules, compiled ahead of time by libtpu 0.0.52 (see the slow test of the bill); what is kept in dead buffers makes
the truth lower.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from . import ir as p
from .work import rooms

REGISTER = 4096
# Of a matrix so many registers stay registers, and so many more are as bad as any number.
_FREE, _MOST = 64, 192
_ROWS_OF_REGISTER, _REGISTERS_OF_ROW = 8, 4  # of a tape


@frozen
class Spills:
    """Registers that a target spills: in any kernel, by products of bf16 and f32, by attention, by the delta rule."""

    always: float
    bf16: float
    f32: float
    attend: float
    delta: float


_BY_TARGET = {
    "v5e": Spills(10, 4, 30, 21, 20),
    "v5p": Spills(10, 4, 30, 21, 20),
    "v6e": Spills(10, 80, 165, 20, 20),
    "tpu7x": Spills(10, 80, 300, 20, 20),
}


def temporaries(program: p.Program) -> int:
    """Bytes, hardly ever below what the compiler takes."""
    spills = _BY_TARGET[program.schedule.target.name]
    found = spills.always
    for depth in range(4):
        found += max((_of_product(dot, program, spills) for at, dot in _dots(program.body, program, 0) if at == depth),
                     default=0.0)  # fmt: skip
    found += spills.attend * max((_of_tile(ring, program) for ring in program.caches.values()), default=0.0)
    found += spills.delta * _heads(program)
    return round(found) * REGISTER


def _dots(ops: tuple[p.Op, ...], program: p.Program, depth: int) -> Iterator[tuple[int, p.Dot | p.ExpertDot]]:
    """Every product with the depth of its region: call, layers, branch, loop."""
    for op in ops:
        if isinstance(op, p.Dot | p.ExpertDot):
            yield depth, op
        elif isinstance(op, p.Repeat | p.Experts):
            yield from _dots(op.body, program, 3)
        elif isinstance(op, p.Layers):
            for choice in op.choices:
                names = {name for name, _ in choice.bodies}
                always = len(names) == 1 and all(names & set(parts) for parts in program.layer_parts.values())
                for _, body in choice.bodies:
                    yield from _dots(body, program, 1 if always else 2)


def _of_product(op: p.Dot | p.ExpertDot, program: p.Program, spills: Spills) -> float:
    if isinstance(op, p.ExpertDot):
        return spills.bf16
    product = program.products[op.product]
    registers = sum(product.tiling.runs[op.run].rows) // _ROWS_OF_REGISTER * _REGISTERS_OF_ROW
    if product.dtype == "f32":  # taken as three bf16 numbers each
        return spills.f32 * min(1.0, 3 * registers / _MOST)
    return spills.bf16 * min(1.0, max(0, registers - _FREE) / _MOST)


def _of_tile(ring: p.CacheRing, program: p.Program) -> float:
    """A tile of the keys of all heads, in units of 512 positions of one head of 128."""
    _, heads, tile, width = program.buffers[ring.buffers[0]].shape
    return heads * tile * width / (512 * 128)


def _heads(program: p.Program) -> int:
    """Heads of the delta rule, twice if its rows are a loop."""
    heads = [program.shares.length(call.args[2].type.shape[0])
             for op in _computes(program.body) for call, _ in rooms(op.node, program.shares, program.rows)]  # fmt: skip
    return max(heads, default=0)


def _computes(ops: tuple[p.Op, ...]) -> Iterator[p.Compute]:
    for op in ops:
        if isinstance(op, p.Compute):
            yield op
        elif isinstance(op, p.Repeat | p.Experts):
            yield from _computes(op.body)
        elif isinstance(op, p.Layers):
            for choice in op.choices:
                for _, body in choice.bodies:
                    yield from _computes(body)
