"""The Program, emitted: a plain walk over its ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from ....dsl.program import ir as p
from ....dsl.program.ir.walk import Placed
from ..collectives.peers import Scalar, barrier
from . import (
    attention,
    collective_ops,
    moe,
    transfers,
)
from .context import Core
from .evaluate import put, store
from .matmul import dot
from .scopes import LAYERS, mark, part_scope, scope
from .signature import StepInput


def emit(ops: Sequence[Placed], core: Core) -> None:
    """Op after op, each in a scope by which failures and schedules name it; scopes are no instructions."""
    for core.at in ops:
        name = scope(core.at.op, core.place)
        with jax.named_scope(name):
            try:
                EMIT[type(core.at.op)](core.at.op, core)
            except Exception as e:
                mark(e, name)
                raise


def _repeat(op: p.Repeat, core: Core) -> None:
    keys, ops = sorted(core.program.rings, key=str), core.at.inside

    def body(i: jax.Array, carry: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        core.restore(keys, carry)
        core.block = i
        emit(ops, core)
        return core.threaded(keys)

    core.restore(keys, lax.fori_loop(0, op.count, body, core.threaded(keys)))
    core.block = 0


def _layers(op: p.LayerLoop, core: Core) -> None:
    keys, switches = sorted(core.counters, key=str), core.at.inside

    def body(layer: jax.Array, carry: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        core.restore(keys, carry)
        core.layer = layer
        with jax.named_scope(LAYERS):
            for core.at, choice in zip(switches, op.choices, strict=True):
                _choice(choice, core)
            return core.threaded(keys)

    core.restore(keys, lax.fori_loop(1, op.stop - op.start + 1, body, core.threaded(keys)))
    core.place, core.layer, core.index = "step", op.stop - op.start + 1, 0


def _choice(choice: p.LayerSwitch, core: Core) -> None:
    """One of several bodies, each emitted once; without a branch where every layer runs the same."""
    keys, table = sorted(core.counters, key=str), core.given[StepInput.LAYERS]

    def run(place: str, ops: Sequence[Placed], carry: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        core.restore(keys, carry)
        core.place = place
        with jax.named_scope(part_scope(place)):
            core.index = table[core.layer, 2 * choice.position + 1]
            emit(ops, core)
        return core.threaded(keys)

    branches: list[Callable[[tuple[Scalar, ...]], tuple[Scalar, ...]]] = [
        partial(run, place, ops) for (place, _), ops in zip(choice.bodies, core.at.bodies, strict=True)
    ]
    carry = core.threaded(keys)
    if not core.program.always(choice):
        branches.append(lambda carry: carry)
    if len(branches) == 1:
        core.restore(keys, branches[0](carry))
        return
    chosen = table[core.layer, 2 * choice.position]
    if len(branches) == 2:
        core.restore(keys, lax.cond(chosen == 0, branches[0], branches[1], carry))
    else:
        chosen = jnp.where(chosen < 0, len(branches) - 1, chosen)
        core.restore(keys, lax.switch(chosen, branches, carry))


# One row an op, each a function of the op and of the core that it is emitted against.
EMIT: dict[type, Callable] = {
    p.Barrier: lambda op, core: barrier(core.cores),
    p.Start: transfers.start,
    p.Wait: transfers.wait,
    p.Dot: dot,
    p.CopyStart: transfers.load,
    p.CopyWait: transfers.loaded,
    p.StoreStart: transfers.save,
    p.StoreWait: transfers.saved,
    p.Lookup: transfers.look_up,
    p.StartTiles: transfers.start_tiles,
    p.Emit: transfers.emit_output,
    p.Compute: store,
    p.Put: put,
    p.RopeTables: attention.turns,
    p.Attend: attention.attend,
    p.Send: collective_ops.send,
    p.Receive: collective_ops.receive,
    p.Argmax: collective_ops.greedy,
    p.Route: moe.route,
    p.Fetch: transfers.fetch,
    p.ExpertDot: moe.expert_dot,
    p.Experts: lambda op, core: moe.experts(op, core, emit),
    p.Repeat: _repeat,
    p.LayerSwitch: _choice,
    p.LayerLoop: _layers,
}
