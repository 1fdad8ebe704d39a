"""Collectives of the Program, and the choice of ids over all cores."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from ....dsl.collectives.collective import Operation
from ....dsl.program import ir as p
from ....dsl.program.ir.scratch import collective, exchange_set
from ..collectives import collectives
from ..collectives.messages import Pending
from ..collectives.peers import Cores, Ref
from ..ops.argmax import argmax
from .context import Core
from .evaluate import columns
from .signature import ChosenRef


def send(op: p.Send, core: Core) -> None:
    """The first messages."""
    exchange = core.program.exchanges[op.exchange]
    made, key = collective(core.program, exchange), exchange_set(core.program, exchange)
    held = core.refs[exchange.value]
    value: Ref = held
    if exchange.kind.operation is not Operation.SOFTMAX_MERGE:
        value = held[...] if held.shape[-1] == exchange.width else columns(held, exchange.first, exchange.width)
    if exchange.beside is not None:
        value = jnp.concatenate([value, core.refs[exchange.beside][...]], axis=-1)
    cores = Cores(core.program.schedule.mesh, exchange.axes)
    core.pending[op.exchange] = collectives.start(made, cores, core.refs[key], core.counters[key][0], value)


def receive(op: p.Receive, core: Core) -> None:
    """The rest, and the result."""
    exchange = core.program.exchanges[op.exchange]
    _ARRIVES[exchange.kind.operation](exchange, core.pending.pop(op.exchange), core)
    _turn(exchange, core)


def _sum(exchange: p.Collective, pending: Pending, core: Core) -> None:
    core.refs[_result(exchange)][...] = collectives.finish(pending)


def _columns(exchange: p.Collective, pending: Pending, core: Core) -> None:
    """This core's columns, and those that go to every core."""
    total = collectives.finish(pending)
    for piece in exchange.pieces:
        core.refs[piece.result][...] = total[:, piece.start : piece.start + piece.width]
    if not exchange.pieces:
        result = core.refs[_result(exchange)]
        result[...] = total[:, : result.shape[-1]]


def _gather(exchange: p.Collective, pending: Pending, core: Core) -> None:
    shares = collectives.finish(pending)
    for piece in exchange.pieces:
        ref = core.refs[piece.result]
        if len(ref.shape) > 2:
            _heads(ref, shares, piece)
            continue
        whole = jnp.concatenate([share[:, piece.start : piece.start + piece.width] for share in shares], axis=-1)
        ref[...] = whole[:, : ref.shape[-1]]


def _merge(exchange: p.Collective, pending: Pending, core: Core) -> None:
    result = core.refs[_result(exchange)]
    for i, head in enumerate(collectives.finish(pending, result.shape[1])):
        result[:, i] = head


# Where what arrives is put, by what a collective does; `argmax` is a part of `greedy`.
_ARRIVES: dict[Operation, Callable[[p.Collective, Pending, Core], None]] = {
    Operation.SUM: _sum,
    Operation.REDUCE_SCATTER: _columns,
    Operation.GATHER: _gather,
    Operation.SOFTMAX_MERGE: _merge,
}


def _result(exchange: p.Collective) -> p.BufferRef:
    assert exchange.result is not None
    return exchange.result


def _heads(ref: Ref, shares: list[jax.Array], piece: p.Piece) -> None:
    """Each core's heads, one after the other, into a buffer of all."""
    _, heads, width = ref.shape
    each = heads // len(shares)
    for i, share in enumerate(shares):
        for head in range(each):
            first = piece.start + head * width
            ref[:, i * each + head] = share[:, first : first + width].astype(ref.dtype)


def _turn(exchange: p.Collective, core: Core) -> None:
    key = exchange_set(core.program, exchange)
    (parity,) = core.counters[key]
    core.counters[key] = (1 - parity,)


def greedy(op: p.Argmax, core: Core) -> None:
    """The lowest id with the largest logit; a share's padding does not take part."""
    program, view = core.program, core.program.views[op.logits]
    held, used = core.refs[view.buffer], op.share
    axis = program.phase.step.types[op.logits.name].shape[0]
    vocab, first = program.instance.length(axis), core.first(axis)
    ways = program.schedule.ways(program.shares.over(axis)) // program.shares.repeats(axis)
    padded = held.shape[-1] != used or ways * used != vocab
    if padded:
        # Written where it lies: the padding comes last, in a few lanes.
        start = used // 128 * 128
        if ways > 1:
            start = max(0, vocab - (ways - 1) * used) // 128 * 128
        ids = start + lax.broadcasted_iota(jnp.int32, (core.rows, held.shape[-1] - start), 1)
        real = (ids < used) & (ids + first < vocab)
        held[:, start:] = jnp.where(real, held[:, start:], -jnp.inf)
    best = argmax(held)
    if op.exchange is None:
        core.refs[ChosenRef()][...] = best
        return
    exchange = program.exchanges[op.exchange]
    value = jnp.max(held[...], axis=-1, keepdims=True)
    key = exchange_set(core.program, exchange)
    parity = core.counters[key][0]
    pending = collectives.start(collective(program, exchange), core.cores, core.refs[key], parity, value, best + first)
    core.refs[ChosenRef()][...] = collectives.finish(pending)[1]
    _turn(exchange, core)
