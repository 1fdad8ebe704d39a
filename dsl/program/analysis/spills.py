"""What the TPU compiler takes of VMEM besides what a kernel declares: room for values that no register holds.

The compiler schedules each region of straight code by itself: the call, the body of a loop, a branch. It loads what an
op works on as early as it can, and spills what registers do not hold. A spilled register takes 4 KiB, and a region
inside another adds to what is spilled around it. So the estimate is, along the worst path from the call inwards, a
number of registers for the largest product, attention, state or choice of each region, by the registers that its
values fill. Emitters keep these few: an f32 matrix is multiplied by 64 inputs at a time, f32 keys and values by as few,
and pieces that lie side by side in a tile are summed without masks. The numbers are above all that was measured: random
schedules of every construct compiled ahead of time by libtpu 0.0.52 (the slow test of the bill prints how far above).

The truth is often lower: the compiler puts what it spills, and buffers that are written anew as a whole, where other
buffers are dead, which saves most with eight rows, as whole registers are written then.
"""

from __future__ import annotations

from functools import reduce
from math import prod

from ...model import ir as m
from ...model.expressions import walk as nodes
from ...records import frozen
from ...targets.lanes import LANES, SUBLANES
from ...targets.target import Spills
from .. import ir as p
from ..ir.scratch import rooms
from ..ir.walk import Placed, tree, walk
from ..lower.attention import ATTENDED

REGISTER = 4096
_FREE, _FULL = 64, 640  # registers of a bf16 matrix that stay registers, and those of the largest transfer
_REGISTERS_OF_ROW = 4  # of a tape
_EXACT = 64  # registers of an f32 matrix that are as bad as any number
_LEVELS = 2  # of regions in each other that spill values
_ONE_ROW = 0.3  # of what values of several rows spill
_SEEN = 48  # registers of running softmaxes that are as bad as any number of them


def temporaries(program: p.Program) -> int:
    """Bytes, at least what the compiler takes."""
    spills = program.schedule.target.spills
    products, values, others = _region(tree(program), program, spills).path
    computed = [(at.op, program.rows_at(at.place)) for at in walk(program) if isinstance(at.op, p.Compute)]
    values = min(values, _LEVELS * max((_of_values(op, rows, program, spills) for op, rows in computed), default=0.0))
    return round(spills.always + products + values + others) * REGISTER


@frozen
class _Region:
    """Registers of a region's largest product, value, choice and state.

    `inside` are those of the worst region inside and of what that has inside: products, values, and all else.
    """

    product: float = 0.0
    value: float = 0.0
    route: float = 0.0
    state: float = 0.0
    inside: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def path(self) -> tuple[float, float, float]:
        """What is spilled while the worst region inside runs: products, values, and all else."""
        products, values, others = self.inside
        return self.product + products, self.value + values, self.route + self.state + others

    def beside(self, other: _Region) -> _Region:
        """What both take in one region, one after the other."""
        return _Region(
            max(self.product, other.product),
            max(self.value, other.value),
            max(self.route, other.route),
            max(self.state, other.state),
            max(self.inside, other.inside, key=sum),
        )


def _region(ops: tuple[Placed, ...], program: p.Program, spills: Spills) -> _Region:
    return reduce(_Region.beside, (_of(each, program, spills) for each in ops), _Region())


def _of(at: Placed, program: p.Program, spills: Spills) -> _Region:
    """A part that every layer runs belongs to the loop's body; one of several is a branch, a region of its own."""
    if isinstance(at.op, p.LayerSwitch) and program.unconditional(at.op):
        return _region(at.inside, program, spills)
    if at.bodies:
        inner = (_Region(inside=_region(body, program, spills).path) for body in at.bodies)
        return reduce(_Region.beside, inner, _Region())
    match op := at.op:
        case p.Dot() | p.ExpertDot():
            return _Region(product=_of_product(op, program, spills))
        case p.Route():
            return _Region(route=spills.route * program.rows_at(at.place))
        case p.Attend() | p.AttendBlock():
            return _Region(inside=(0.0, 0.0, _of_attention(op, program, spills)))
        case p.Compute():
            rows = program.rows_at(at.place)
            value = _of_values(op, rows, program, spills)
            state = spills.state * _of_states(op, rows, program)
            if rows == 1:
                return _Region(value=value, state=state)
            return _Region(value=value, inside=(0.0, 0.0, state))  # a loop over rows
    return _Region()


def _of_product(op: p.Dot | p.ExpertDot, program: p.Program, spills: Spills) -> float:
    if isinstance(op, p.ExpertDot):
        codec = program.banks[op.bank].layout.products[op.product].codec.name
        return spills.f32 if "f32" in (codec, program.instance.working) else spills.bf16
    product = program.products[op.product]
    registers = sum(product.tiling.runs[op.run].rows) // SUBLANES * _REGISTERS_OF_ROW
    if product.dtype == "f32":
        return spills.f32 * min(1.0, registers / _EXACT)
    return spills.bf16 * min(1.0, max(0, registers - _FREE) / (_FULL - _FREE))


def _of_attention(op: p.Attend | p.AttendBlock, program: p.Program, spills: Spills) -> float:
    """For the keys of all heads, as many positions as are seen at once; and for the softmaxes of all that see them."""
    ring = program.caches[op.ring]
    keys, result = program.buffers[ring.buffers[0]], program.buffers[op.result]
    _, heads, tile, width = keys.shape
    positions, words = min(tile, ATTENDED), 2 if keys.dtype == "bf16" else 1
    of_tile = heads * _registers(positions, width) / words
    phase = program.phase_of(ring.part)
    seeing = result.shape[1] * (phase.rows if phase.consecutive and not ring.axes else 1)
    running = _registers(seeing, result.shape[2]) + _registers(seeing, positions) + 2 * _registers(seeing, 1)
    return spills.tile * of_tile + spills.heads * min(running, _SEEN) * (3 - words)


def _of_values(op: p.Compute, rows: int, program: p.Program, spills: Spills) -> float:
    """For the largest value that a statement makes."""
    found = 0
    for node in nodes(op.node):
        if not isinstance(node, m.Static | m.StateRef | m.Slice | m.WeightRef) and isinstance(node.type, m.Type):
            shape = (rows, *program.shares.shape(node.type.shape))
            found = max(found, prod(shape[:-2]) * _registers(*shape[-2:]) if len(shape) > 1 else 0)
    return spills.value * max(0, found - spills.kept) * (1.0 if rows > 1 else _ONE_ROW)


def _of_states(op: p.Compute, rows: int, program: p.Program) -> int:
    """Registers of one row's states of the delta rule."""
    found = 0
    for call, _ in rooms(op.node, program.shares, rows):
        (_, key), (heads, val) = (program.shares.shape(call.args[i].type.shape) for i in (0, 2))
        found = max(found, heads * _registers(key, val))
    return found


def _registers(rows: int, columns: int) -> int:
    return -(-rows // SUBLANES) * -(-columns // LANES)
