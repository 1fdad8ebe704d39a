"""What each op of a Program touches: which buffers, arrays and rings, how much of each, and as what type.

`OPS` has a row for each op. All that a Program's proof knows of an op's reach it has from there: the order of reads and
writes, and that none goes beyond what there is. `spec_resources` says the same of what ops are given: buffers' views,
products, copies, caches, experts, collectives and arrays. `computed_ops.MAKES` says what an op makes of what it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .. import ir as p
from . import spec_blocks as blocks
from . import spec_compute as makes
from . import spec_transfers as moves
from .spec_access import Access, Wrong

type Rule = Callable[[Any, str, p.Program], Iterator[Access]]


def _nothing(op: p.Op, place: str, program: p.Program) -> Iterator[Access]:
    """What it consists of touches, or only semaphores do."""
    yield from ()


# One row an op. `LayerSwitch` and `LayerLoop` hold others, and so does `Repeat`.
OPS: dict[type, Rule] = {
    p.Barrier: _nothing,
    p.Start: moves.start,
    p.Wait: moves.wait,
    p.Dot: makes.dot,
    p.CopyStart: moves.load,
    p.CopyWait: moves.loaded,
    p.StoreStart: moves.save,
    p.StoreWait: moves.saved,
    p.Lookup: blocks.lookup,
    p.Compute: makes.compute,
    p.Send: makes.send,
    p.Receive: makes.receive,
    p.StartTiles: moves.start_tiles,
    p.Attend: makes.attend,
    p.AttendBlock: blocks.attend_block,
    p.Emit: moves.emit,
    p.Argmax: makes.greedy,
    p.ArgmaxValue: blocks.argmax_value,
    p.RopeTables: makes.turns,
    p.Put: makes.put,
    p.Keep: blocks.keep,
    p.Route: makes.route,
    p.Fetch: moves.fetch,
    p.ExpertDot: makes.expert_dot,
    p.Experts: makes.experts,
    p.Repeat: _nothing,
    p.RowLoop: blocks.row_loop,
    p.LayerSwitch: _nothing,
    p.LayerLoop: _nothing,
}


def accesses(op: p.Op, place: str, program: p.Program) -> tuple[Access, ...]:
    """All that an op touches itself; what it consists of is apart. Raises `Wrong` for one that has no row."""
    rule = OPS.get(type(op))
    if rule is None:
        raise Wrong(f"nothing is known of the op {type(op).__name__}: it has no row in `spec.OPS`")
    return tuple(rule(op, place, program))
