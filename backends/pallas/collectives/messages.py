"""Messages of a collective under way: what all kinds of them store, send, wait for and add up."""

from __future__ import annotations

from functools import reduce

import jax
import jax.numpy as jnp
from attrs import frozen
from jax.experimental import pallas as pl

from ....dsl.collectives.collective import CollectivePlan
from .peers import RECEIVE, SEND, Cores, Ref, Scalar, send, wait


@frozen(eq=False)
class Pending:
    """A collective under way on a set of buffers."""

    plan: CollectivePlan
    cores: Cores
    buffers: dict[str, Ref]
    semaphores: Ref
    parity: Scalar


def spread(pending: Pending, number: int, slots: Ref) -> None:
    """Send one's own slot of `[2, cores, …]` into the same slot of all others."""
    cores, parity = pending.cores, pending.parity
    rank = cores.rank()
    mine = slots.at[parity, rank]
    for peer in cores.peers(rank):
        send(mine, mine, pending.semaphores.at[number], parity, cores.address(peer))


def send_home(pending: Pending) -> None:
    """Send each core its slot of `outgoing`, `[cores, …]`, into one's own of its `partials`, `[2, cores, …]`."""
    cores, parity = pending.cores, pending.parity
    outgoing, partials = pending.buffers["outgoing"], pending.buffers["partials"]
    rank = cores.rank()
    for peer in cores.peers(rank):
        send(outgoing.at[peer], partials.at[parity, rank], pending.semaphores.at[0], parity, cores.address(peer))
    partials[parity, rank] = outgoing[rank]


def received(pending: Pending, number: int, slots: Ref) -> None:
    """Wait for a message from each of the others that share `slots`, `[2, count, …]`, each as long as a slot."""
    _waited(pending, number, slots, RECEIVE)


def sent(pending: Pending, number: int, slots: Ref) -> None:
    """Wait until one's own messages into such slots of the others have left."""
    _waited(pending, number, slots, SEND)


def _waited(pending: Pending, number: int, slots: Ref, direction: int) -> None:
    if slots.shape[1] > 1:
        all_but_one = slots.at[pending.parity, pl.ds(0, slots.shape[1] - 1)]
        wait(all_but_one, pending.semaphores.at[number], pending.parity, direction)


def store(slot: Ref, value: jax.Array) -> None:
    """As it travels, into the first columns of a slot; what lies beyond is sent along and never read."""
    slot[:, : value.shape[-1]] = value.astype(slot.dtype)


def store_columns(slots: Ref, value: jax.Array, beside: int = 0) -> None:
    """Columns shared out over `slots`, `[count, rows, chunk]`, in order; the last of them may be short or empty.

    The last `beside` columns go to the end of every slot.
    """
    count, _, room = slots.shape
    chunk, width = room - beside, value.shape[-1] - beside
    for first in range(0, min(count * chunk, width), chunk):
        store(slots.at[first // chunk], value[:, first : min(first + chunk, width)])
    for i in range(count if beside else 0):
        slots[i, :, chunk:] = value[:, width:].astype(slots.dtype)


def added(slots: Ref, parity: Scalar, width: int) -> jax.Array:
    """The sum of the slots' first columns in the order of ranks, f32 `[rows, width]`."""
    parts = (as_f32(slots[parity, i, :, :width]) for i in range(slots.shape[1]))
    return reduce(jnp.add, parts)


def side_by_side(slots: Ref, parity: Scalar, width: int) -> jax.Array:
    """The slots' first columns in the order of ranks, f32 `[rows, count * width]`."""
    return jnp.concatenate([as_f32(slots[parity, i, :, :width]) for i in range(slots.shape[1])], axis=-1)


def as_f32(value: jax.Array) -> jax.Array:
    """What came, to be summed."""
    return value.astype(jnp.float32)
