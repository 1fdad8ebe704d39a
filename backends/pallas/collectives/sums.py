"""Sums over cores: of all columns for all cores, or scattered. `collectives` says why no slot is written too soon."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from .messages import Pending, added, as_f32, received, send_home, sent, side_by_side, spread, store, store_columns
from .peers import RECEIVE, SEND, others, send, wait


def start_direct(pending: Pending, value: jax.Array) -> None:
    """Send all of this core's part, f32 `[rows, width]`, to all others."""
    slots = pending.buffers["slots"]
    store(slots.at[pending.parity, pending.cores.rank()], value)
    spread(pending, 0, slots)


def finish_direct(pending: Pending) -> jax.Array:
    """The sum, f32 `[rows, width]`."""
    slots, width = pending.buffers["slots"], pending.plan.width
    received(pending, 0, slots)
    total = added(slots, pending.parity, width)
    sent(pending, 0, slots)
    return total


def finish_reduce_scatter(pending: Pending) -> jax.Array:
    """This core's columns of the sum, f32 `[rows, chunk]`, and those that all have; those beyond `width` are zero."""
    partials = pending.buffers["partials"]
    received(pending, 0, partials)
    total = added(partials, pending.parity, partials.shape[-1])
    sent(pending, 0, partials)
    beside = pending.plan.beside
    chunk, width = total.shape[-1] - beside, pending.plan.width - beside
    column = lax.broadcasted_iota(jnp.int32, (total.shape[0], chunk), 1) + pending.cores.rank() * chunk
    own = jnp.where(column < width, total[:, :chunk], 0.0)
    return jnp.concatenate([own, total[:, chunk:]], axis=-1) if beside else own


def start_columns(pending: Pending, value: jax.Array) -> None:
    """Send each core its columns of this core's part, f32 `[rows, width]`."""
    store_columns(pending.buffers["outgoing"], value, pending.plan.beside)
    send_home(pending)


def finish_scatter_gather(pending: Pending) -> jax.Array:
    """All columns, f32 `[rows, width]`, of cores that each add up their own."""
    parity, width = pending.parity, pending.plan.width
    partials, sums = pending.buffers["partials"], pending.buffers["sums"]
    received(pending, 0, partials)
    store(sums.at[parity, pending.cores.rank()], added(partials, parity, partials.shape[-1]))
    spread(pending, 1, sums)
    received(pending, 1, sums)
    total = side_by_side(sums, parity, sums.shape[-1])[:, :width]
    sent(pending, 0, partials)
    sent(pending, 1, sums)
    return total


def start_two_level(pending: Pending, value: jax.Array) -> None:
    """Send the sibling its half of this core's part, f32 `[rows, width]`."""
    cores, parity = pending.cores, pending.parity
    outgoing = pending.buffers["outgoing"]
    store_columns(outgoing, value)
    sibling = cores.rank() ^ 1
    target = pending.buffers["sibling"].at[parity]
    send(outgoing.at[sibling & 1], target, pending.semaphores.at[0], parity, cores.address(sibling))


def finish_two_level(pending: Pending) -> jax.Array:
    """A core of rank r keeps half r & 1: summed with its sibling's, then over chips, then given to its sibling."""
    cores, parity, semaphores = pending.cores, pending.parity, pending.semaphores
    outgoing, near, chips, halves = (pending.buffers[n] for n in ("outgoing", "sibling", "chips", "halves"))
    rank = cores.rank()
    chip, side = rank >> 1, rank & 1

    wait(near.at[parity], semaphores.at[0], parity, RECEIVE)
    store(chips.at[parity, chip], as_f32(outgoing[side]) + as_f32(near[parity]))  # two terms: any order, the same bits
    for other in others(chip, cores.count // 2):
        mine = chips.at[parity, chip]
        send(mine, mine, semaphores.at[1], parity, cores.address(other * 2 + side))
    received(pending, 1, chips)
    half = halves.at[parity, side]
    store(half, added(chips, parity, chips.shape[-1]))
    send(half, half, semaphores.at[2], parity, cores.address(rank ^ 1))
    wait(half, semaphores.at[2], parity, RECEIVE)
    total = side_by_side(halves, parity, halves.shape[-1])[:, : pending.plan.width]
    wait(near.at[parity], semaphores.at[0], parity, SEND)
    sent(pending, 1, chips)
    wait(half, semaphores.at[2], parity, SEND)
    return total
