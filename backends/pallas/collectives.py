"""Collectives inside a kernel: sums, gathers, softmaxes and the greatest, over cores that write each other's VMEM.

Each is split in `start`, which stores this core's part and sends the first messages, and `finish`, which waits, runs
the later phases and returns the result; what is placed between the two runs while the messages travel.

Why no slot is written while a core may still read it. Take the collectives that use one set of buffers, c, c + 1, …,
by the same cores, each finished before the next is started, with parities that alternate:

* Another core's c + 2 writes where c was read. It left c + 1 first, so it had received what this core sent in c + 1.
  This core sent that after it had finished c, its reading included. So c + 1 lies between any reading and the next
  writing of a slot. (In `two_level` a slot has one writer only, the sibling or a core of another chip; in every
  collective that writer waits for this core's message of the same phase, so the argument holds phase by phase.)
* Messages of c + 1 may come while this core waits in c. Parities and phases have semaphores of their own, so that
  they are never counted as c's; c + 2 cannot have begun.
* What this core sends from, it overwrites at the earliest in its next collective: `finish` waits for all sends.

Hence: one set of buffers for each set of cores and shape, at most one collective under way on it, and `barrier` before
the first. A single parity breaks the first point: a core that has left c may send c + 1 to one that still reads c.

Sums run in the order of ranks over values as they travel, one's own included, so that all cores get the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

import jax
import jax.numpy as jnp
from attrs import frozen
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ...dsl.program.exchange import LANES, Exchange
from ..reference.rounding import DTYPES
from .ops.attend import merged
from .peers import RECEIVE, SEND, Cores, Ref, Scalar, others, send, wait


@frozen(eq=False)
class Pending:
    """A collective under way on a set of buffers."""

    exchange: Exchange
    cores: Cores
    buffers: dict[str, Ref]
    semaphores: Ref
    parity: Scalar


def scratch(exchange: Exchange) -> tuple[object, ...]:
    """Scratch shapes of one set of buffers: the exchange's in their order, then the semaphores."""
    held = [pltpu.VMEM(need.shape, DTYPES[need.dtype]) for need in exchange.buffers]
    return (*held, pltpu.SemaphoreType.DMA(exchange.semaphores))


def start(
    exchange: Exchange,
    cores: Cores,
    refs: Sequence[Ref],
    parity: Scalar,
    value: jax.Array,
    ids: jax.Array | None = None,
) -> Pending:
    """Send the first messages of a collective.

    Args:
        exchange: what is exchanged; its cores are as many as `cores`.
        refs: a set of buffers, in the order of `scratch`.
        parity: 0 and 1 in turn with each collective on these buffers, static or an int32 scalar.
        value: this core's part, f32 `[rows, width]`; to merge, a reference to the softmaxes of all heads,
            `[rows, heads, n + 128]`, as `ops.attend.apart` gives them.
        ids: with `argmax`, the id of each value, int32 `[rows, 1]`.

    Raises:
        ValueError: the exchange is for other cores or another shape.
    """
    if exchange.cores != cores.count:
        raise ValueError(f"an exchange between {exchange.cores} cores, used by {cores.count}")
    rows, *columns = value.shape
    shares = exchange.cores if exchange.kind == "merge" else 1
    if (rows, prod(columns)) != (exchange.rows, shares * exchange.width):
        raise ValueError(f"an exchange of {[exchange.rows, exchange.width]}, given {list(value.shape)}")
    if exchange.by == "two_level" and not cores.paired:
        raise ValueError(f"two_level needs pairs of cores along the last axis of {cores.mesh}; got {cores.axes}")
    *buffers, semaphores = refs
    named = dict(zip((need.name for need in exchange.buffers), buffers, strict=True))
    pending = Pending(exchange, cores, named, semaphores, parity)
    if exchange.kind == "argmax":
        if ids is None:
            raise ValueError("argmax needs the ids of its values")
        _start_argmax(pending, value, ids)
    elif exchange.kind == "merge":
        _start_merge(pending, value)
    elif exchange.by in ("scatter_gather", "scatter"):
        _start_scatter(pending, value)
    elif exchange.by == "two_level":
        _start_two_level(pending, value)
    else:
        _store(named["slots"].at[parity, cores.rank()], value)
        _spread(pending, 0, named["slots"])
    return pending


def finish_all_reduce(pending: Pending) -> jax.Array:
    """The sum, f32 `[rows, width]`, the same bits on all cores."""
    by = pending.exchange.by
    if by == "scatter_gather":
        return _finish_scatter(pending)
    if by == "two_level":
        return _finish_two_level(pending)
    slots, width = pending.buffers["slots"], pending.exchange.width
    _received(pending, 0, slots)
    total = _sum(slots, pending.parity, width)
    _sent(pending, 0, slots)
    return total


def finish_scatter(pending: Pending) -> jax.Array:
    """This core's columns of the sum, f32 `[rows, chunk]`, and those that all have; those beyond `width` are zero."""
    partials = pending.buffers["partials"]
    _received(pending, 0, partials)
    total = _sum(partials, pending.parity, partials.shape[-1])
    _sent(pending, 0, partials)
    beside = pending.exchange.beside
    chunk, width = total.shape[-1] - beside, pending.exchange.width - beside
    column = lax.broadcasted_iota(jnp.int32, (total.shape[0], chunk), 1) + pending.cores.rank() * chunk
    own = jnp.where(column < width, total[:, :chunk], 0.0)
    return jnp.concatenate([own, total[:, chunk:]], axis=-1) if beside else own


def finish_merge(pending: Pending, heads: int) -> list[jax.Array]:
    """The means of the values over all positions, f32 `[rows, n]` for each of this core's heads."""
    partials, parity = pending.buffers["partials"], pending.parity
    _received(pending, 0, partials)
    each, found = pending.exchange.width // heads, []
    for first in range(0, pending.exchange.width, each):
        parts = [partials[parity, i, :, first : first + each] for i in range(pending.exchange.cores)]
        found.append(merged(parts))
    _sent(pending, 0, partials)
    return found


def _start_merge(pending: Pending, value: Ref) -> None:
    cores, parity = pending.cores, pending.parity
    outgoing, partials = pending.buffers["outgoing"], pending.buffers["partials"]
    _, heads, width = value.shape
    each = heads // cores.count

    def home(core: Scalar, _: None) -> None:
        for i in range(each):
            outgoing[core, :, i * width : (i + 1) * width] = value[:, core * each + i]

    lax.fori_loop(0, cores.count, home, None)
    rank = cores.rank()
    for peer in cores.peers(rank):
        send(outgoing.at[peer], partials.at[parity, rank], pending.semaphores.at[0], parity, cores.address(peer))
    partials[parity, rank] = outgoing[rank]


def finish_all_gather(pending: Pending) -> jax.Array:
    """All shares side by side in the order of ranks, f32 `[rows, cores * width]`."""
    return jnp.concatenate(finish_gather(pending), axis=-1)


def finish_gather(pending: Pending) -> list[jax.Array]:
    """All shares in the order of ranks, f32 `[rows, width]` each."""
    slots, width = pending.buffers["slots"], pending.exchange.width
    _received(pending, 0, slots)
    shares = [_f32(slots[pending.parity, i, :, :width]) for i in range(slots.shape[1])]
    _sent(pending, 0, slots)
    return shares


def finish_argmax(pending: Pending) -> tuple[jax.Array, jax.Array]:
    """The greatest value, f32 `[rows, 1]`, and its id, int32 `[rows, 1]`: the lowest of those with that value."""
    slots, parity = pending.buffers["slots"], pending.parity
    _received(pending, 0, slots)
    best, chosen = _scored(slots, parity, 0)
    for rank in range(1, pending.exchange.cores):
        value, ids = _scored(slots, parity, rank)
        better = (value > best) | ((value == best) & (ids < chosen))
        best, chosen = jnp.where(better, value, best), jnp.where(better, ids, chosen)
    _sent(pending, 0, slots)
    return best[:, :1], chosen[:, :1]


def _start_argmax(pending: Pending, value: jax.Array, ids: jax.Array) -> None:
    slots, shape = pending.buffers["slots"], (pending.exchange.rows, LANES)
    slot = slots.at[pending.parity, pending.cores.rank()]
    slot[0] = lax.bitcast_convert_type(jnp.broadcast_to(value, shape), jnp.int32)
    slot[1] = jnp.broadcast_to(ids, shape)
    _spread(pending, 0, slots)


def _scored(slots: Ref, parity: Scalar, rank: int) -> tuple[jax.Array, jax.Array]:
    return lax.bitcast_convert_type(slots[parity, rank, 0], jnp.float32), slots[parity, rank, 1]


def _start_scatter(pending: Pending, value: jax.Array) -> None:
    cores, parity = pending.cores, pending.parity
    outgoing, partials = pending.buffers["outgoing"], pending.buffers["partials"]
    _store_columns(outgoing, value, pending.exchange.beside)
    rank = cores.rank()
    for peer in cores.peers(rank):
        send(outgoing.at[peer], partials.at[parity, rank], pending.semaphores.at[0], parity, cores.address(peer))
    partials[parity, rank] = outgoing[rank]


def _finish_scatter(pending: Pending) -> jax.Array:
    parity, width = pending.parity, pending.exchange.width
    partials, sums = pending.buffers["partials"], pending.buffers["sums"]
    _received(pending, 0, partials)
    _store(sums.at[parity, pending.cores.rank()], _sum(partials, parity, partials.shape[-1]))
    _spread(pending, 1, sums)
    _received(pending, 1, sums)
    total = _side_by_side(sums, parity, sums.shape[-1])[:, :width]
    _sent(pending, 0, partials)
    _sent(pending, 1, sums)
    return total


def _start_two_level(pending: Pending, value: jax.Array) -> None:
    cores, parity = pending.cores, pending.parity
    outgoing = pending.buffers["outgoing"]
    _store_columns(outgoing, value)
    sibling = cores.rank() ^ 1
    target = pending.buffers["sibling"].at[parity]
    send(outgoing.at[sibling & 1], target, pending.semaphores.at[0], parity, cores.address(sibling))


def _finish_two_level(pending: Pending) -> jax.Array:
    """A core of rank r keeps half r & 1: summed with its sibling's, then over chips, then given to its sibling."""
    cores, parity, semaphores = pending.cores, pending.parity, pending.semaphores
    outgoing, near, chips, halves = (pending.buffers[n] for n in ("outgoing", "sibling", "chips", "halves"))
    rank = cores.rank()
    chip, side = rank >> 1, rank & 1

    wait(near.at[parity], semaphores.at[0], parity, RECEIVE)
    _store(chips.at[parity, chip], _f32(outgoing[side]) + _f32(near[parity]))  # two terms: any order, the same bits
    for other in others(chip, cores.count // 2):
        mine = chips.at[parity, chip]
        send(mine, mine, semaphores.at[1], parity, cores.address(other * 2 + side))
    _received(pending, 1, chips)
    half = halves.at[parity, side]
    _store(half, _sum(chips, parity, chips.shape[-1]))
    send(half, half, semaphores.at[2], parity, cores.address(rank ^ 1))
    wait(half, semaphores.at[2], parity, RECEIVE)
    total = _side_by_side(halves, parity, halves.shape[-1])[:, : pending.exchange.width]
    wait(near.at[parity], semaphores.at[0], parity, SEND)
    _sent(pending, 1, chips)
    wait(half, semaphores.at[2], parity, SEND)
    return total


def _spread(pending: Pending, phase: int, slots: Ref) -> None:
    """Send one's own slot of `[2, cores, …]` into the same slot of all others."""
    cores, parity = pending.cores, pending.parity
    rank = cores.rank()
    mine = slots.at[parity, rank]
    for peer in cores.peers(rank):
        send(mine, mine, pending.semaphores.at[phase], parity, cores.address(peer))


def _received(pending: Pending, phase: int, slots: Ref) -> None:
    """Wait for a message from each of the others that share `slots`, `[2, count, …]`, each as long as a slot."""
    _waited(pending, phase, slots, RECEIVE)


def _sent(pending: Pending, phase: int, slots: Ref) -> None:
    _waited(pending, phase, slots, SEND)


def _waited(pending: Pending, phase: int, slots: Ref, direction: int) -> None:
    if slots.shape[1] > 1:
        all_but_one = slots.at[pending.parity, pl.ds(0, slots.shape[1] - 1)]
        wait(all_but_one, pending.semaphores.at[phase], pending.parity, direction)


def _store(slot: Ref, value: jax.Array) -> None:
    """As it travels, into the first columns of a slot; what lies beyond is sent along and never read."""
    slot[:, : value.shape[-1]] = value.astype(slot.dtype)


def _store_columns(slots: Ref, value: jax.Array, beside: int = 0) -> None:
    """Columns shared out over `slots`, `[count, rows, chunk]`, in order; the last of them may be short or empty.

    The last `beside` columns go to the end of every slot.
    """
    count, _, room = slots.shape
    chunk, width = room - beside, value.shape[-1] - beside
    for first in range(0, min(count * chunk, width), chunk):
        _store(slots.at[first // chunk], value[:, first : min(first + chunk, width)])
    for i in range(count if beside else 0):
        slots[i, :, chunk:] = value[:, width:].astype(slots.dtype)


def _sum(slots: Ref, parity: Scalar, width: int) -> jax.Array:
    parts = (_f32(slots[parity, i, :, :width]) for i in range(slots.shape[1]))
    return reduce(jnp.add, parts)


def _side_by_side(slots: Ref, parity: Scalar, width: int) -> jax.Array:
    return jnp.concatenate([_f32(slots[parity, i, :, :width]) for i in range(slots.shape[1])], axis=-1)


def _f32(value: jax.Array) -> jax.Array:
    return value.astype(jnp.float32)
