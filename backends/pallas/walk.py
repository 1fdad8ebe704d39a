"""The Program, emitted: a plain walk over its ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from ...dsl.program import ir as p
from ...dsl.program.work import collective, exchange_set
from . import collectives, transfers
from .core import Core, following
from .dots import dot
from .evaluate import store
from .ops import attend as attention
from .ops.argmax import argmax
from .peers import Scalar, barrier


def emit(ops: Sequence[p.Op], core: Core) -> None:
    """Op after op."""
    for op in ops:
        _EMIT[type(op)](op, core)


def _repeat(op: p.Repeat, core: Core) -> None:
    keys = sorted(core.program.rings)

    def body(i: jax.Array, carry: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        core.restore(keys, carry)
        core.block = i
        emit(op.body, core)
        return core.threaded(keys)

    core.restore(keys, lax.fori_loop(0, op.count, body, core.threaded(keys)))
    core.block = 0


def _layers(op: p.Layers, core: Core) -> None:
    keys = sorted(core.counters)

    def body(layer: jax.Array, carry: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        core.restore(keys, carry)
        core.layer = layer
        for choice in op.choices:
            _choice(choice, core)
        return core.threaded(keys)

    core.restore(keys, lax.fori_loop(1, op.stop - op.start + 1, body, core.threaded(keys)))
    core.place, core.layer, core.index = "step", op.stop - op.start + 1, 0


def _choice(choice: p.Choice, core: Core) -> None:
    """One of several bodies, each emitted once; without a branch where every layer runs the same."""
    keys, table = sorted(core.counters), core.refs["layers"]
    names = {name for name, _ in choice.bodies}
    always = all(names & set(parts) for parts in core.program.layer_parts.values())

    def run(place: str, ops: Sequence[p.Op], carry: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        core.restore(keys, carry)
        core.place, core.index = place, table[core.layer, 2 * choice.position + 1]
        emit(ops, core)
        return core.threaded(keys)

    branches: list[Callable[[tuple[Scalar, ...]], tuple[Scalar, ...]]] = [
        partial(run, place, ops) for place, ops in choice.bodies
    ]
    carry = core.threaded(keys)
    if not always:
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


def _attend(op: p.Attend, core: Core) -> None:
    """Every row's own token, then the tiles of all rows, one after the other."""
    ring, program = core.program.caches[op.ring], core.program
    scale = float(program.instance.number(op.call.options[0][1]))
    query, result = core.refs[op.query], core.refs[op.result]
    keys, values = (core.held(name) for name in op.entries)
    list_, at = core.refs[f"tiles of {ring.tile}"], core.refs["at"]
    total = list_[0]

    def own(row: Scalar) -> attention.Running:
        return attention.own(query[row], keys[row], values[row], scale)

    def first(row: Scalar, _: None) -> None:
        result[row] = attention.result(own(row))

    lax.fori_loop(0, core.rows, first, None)

    def tile(i: Scalar, carry: tuple[Scalar, attention.Running]) -> tuple[Scalar, attention.Running]:
        slot, so_far = carry
        row, number = transfers.unpacked(list_[i + 1])
        fresh = own(row)
        so_far = jax.tree.map(lambda a, b: jnp.where(number == 0, a, b), fresh, so_far)
        transfers.wait_tile(ring, slot, core)
        k, v = (core.refs[name].at[slot] for name in ring.buffers)
        so_far = attention.tile(so_far, query[row], k, v, number * ring.tile, at[row], scale)

        @pl.when(i + ring.slots < total)
        def _() -> None:
            transfers.start_tile(ring, i + ring.slots, slot, core)

        @pl.when(list_[i + 2] >> 16 != row)
        def _() -> None:
            result[row] = attention.result(so_far)

        return following(slot, ring.slots), so_far

    lax.fori_loop(0, total, tile, (jnp.int32(0), own(0)))


def _send(op: p.Send, core: Core) -> None:
    exchange = core.program.exchanges[op.exchange]
    made = collective(core.program, exchange)
    key = exchange_set(exchange)
    value = core.refs[exchange.value][:, : exchange.width]
    core.scope[f"pending {op.exchange}"] = collectives.start(
        made, core.cores, core.refs[key], core.counters[key][0], value
    )


def _receive(op: p.Receive, core: Core) -> None:
    exchange = core.program.exchanges[op.exchange]
    pending = core.scope.pop(f"pending {op.exchange}")
    core.refs[exchange.result][...] = collectives.finish_all_reduce(pending)
    _turn(exchange, core)


def _turn(exchange: p.Exchange, core: Core) -> None:
    key = exchange_set(exchange)
    (parity,) = core.counters[key]
    core.counters[key] = (1 - parity,)


def _greedy(op: p.Greedy, core: Core) -> None:
    """The lowest id with the largest logit; a share's padding does not take part."""
    program, view = core.program, core.program.views[op.logits]
    held, vocab = (
        core.refs[view.buffer],
        program.instance.length(program.instance.model.steps[""].types[op.logits].shape[0]),
    )
    used = op.share
    first = core.cores.rank() * op.share if op.exchange is not None else 0
    padded = held.shape[-1] != used or (op.exchange is not None and program.schedule.cores * used != vocab)
    if padded:
        # Written where it lies: the padding comes last, in a few lanes.
        start = used // 128 * 128
        if op.exchange is not None:
            start = max(0, vocab - (program.schedule.cores - 1) * used) // 128 * 128
        ids = start + lax.broadcasted_iota(jnp.int32, (core.rows, held.shape[-1] - start), 1)
        real = (ids < used) & (ids + first < vocab)
        held[:, start:] = jnp.where(real, held[:, start:], -jnp.inf)
    best = argmax(held)
    if op.exchange is None:
        core.refs["chosen"][...] = best
        return
    exchange = program.exchanges[op.exchange]
    value = jnp.max(held[...], axis=-1, keepdims=True)
    parity = core.counters[exchange_set(exchange)][0]
    pending = collectives.start(collective(program, exchange), core.cores, core.refs[exchange_set(exchange)], parity,
                                value, best + first)  # fmt: skip
    core.refs["chosen"][...] = collectives.finish_argmax(pending)[1]
    _turn(exchange, core)


_EMIT: dict[type, Callable] = {
    p.Barrier: lambda op, core: barrier(core.cores),
    p.Start: transfers.start, p.Wait: transfers.wait, p.Dot: dot, p.Load: transfers.load, p.Loaded: transfers.loaded,
    p.Save: transfers.save, p.Saved: transfers.saved, p.Lookup: transfers.look_up, p.StartTiles: transfers.start_tiles,
    p.Emit: transfers.emit_output, p.Compute: lambda op, core: store(core, op), p.Send: _send, p.Receive: _receive,
    p.Attend: _attend, p.Greedy: _greedy, p.Repeat: _repeat, p.Choice: _choice, p.Layers: _layers,
}  # fmt: skip
