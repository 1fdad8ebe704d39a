"""Collectives inside a kernel: sums (`sums`), gathers, softmaxes, the greatest; cores write each other's VMEM.

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
from math import prod

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import tpu as pltpu

from ....dsl.program.layout.collective_plan import CollectivePlan
from ....dsl.program.layout.lanes import LANES
from ...reference.rounding import DTYPES
from ..ops.attend import merged
from .messages import Pending, as_f32, received, send_home, sent, spread, store
from .peers import Cores, Ref, Scalar
from .sums import start_scatter, start_two_level


def scratch(exchange: CollectivePlan) -> tuple[object, ...]:
    """Scratch shapes of one set of buffers: the exchange's in their order, then the semaphores."""
    held = [pltpu.VMEM(need.shape, DTYPES[need.dtype]) for need in exchange.buffers]
    return (*held, pltpu.SemaphoreType.DMA(exchange.semaphores))


def start(
    exchange: CollectivePlan,
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
        start_scatter(pending, value)
    elif exchange.by == "two_level":
        start_two_level(pending, value)
    else:
        store(named["slots"].at[parity, cores.rank()], value)
        spread(pending, 0, named["slots"])
    return pending


def finish_merge(pending: Pending, heads: int) -> list[jax.Array]:
    """The means of the values over all positions, f32 `[rows, n]` for each of this core's heads."""
    partials, parity = pending.buffers["partials"], pending.parity
    received(pending, 0, partials)
    each, found = pending.exchange.width // heads, []
    for first in range(0, pending.exchange.width, each):
        parts = [partials[parity, i, :, first : first + each] for i in range(pending.exchange.cores)]
        found.append(merged(parts))
    sent(pending, 0, partials)
    return found


def _start_merge(pending: Pending, value: Ref) -> None:
    cores, outgoing = pending.cores, pending.buffers["outgoing"]
    _, heads, width = value.shape
    each = heads // cores.count

    def home(core: Scalar, _: None) -> None:
        for i in range(each):
            outgoing[core, :, i * width : (i + 1) * width] = value[:, core * each + i]

    lax.fori_loop(0, cores.count, home, None)
    send_home(pending)


def finish_all_gather(pending: Pending) -> jax.Array:
    """All shares side by side in the order of ranks, f32 `[rows, cores * width]`."""
    return jnp.concatenate(finish_gather(pending), axis=-1)


def finish_gather(pending: Pending) -> list[jax.Array]:
    """All shares in the order of ranks, f32 `[rows, width]` each."""
    slots, width = pending.buffers["slots"], pending.exchange.width
    received(pending, 0, slots)
    shares = [as_f32(slots[pending.parity, i, :, :width]) for i in range(slots.shape[1])]
    sent(pending, 0, slots)
    return shares


def finish_argmax(pending: Pending) -> tuple[jax.Array, jax.Array]:
    """The greatest value, f32 `[rows, 1]`, and its id, int32 `[rows, 1]`: the lowest of those with that value."""
    slots, parity = pending.buffers["slots"], pending.parity
    received(pending, 0, slots)
    best, chosen = _scored(slots, parity, 0)
    for rank in range(1, pending.exchange.cores):
        value, ids = _scored(slots, parity, rank)
        better = (value > best) | ((value == best) & (ids < chosen))
        best, chosen = jnp.where(better, value, best), jnp.where(better, ids, chosen)
    sent(pending, 0, slots)
    return best[:, :1], chosen[:, :1]


def _start_argmax(pending: Pending, value: jax.Array, ids: jax.Array) -> None:
    slots, shape = pending.buffers["slots"], (pending.exchange.rows, LANES)
    slot = slots.at[pending.parity, pending.cores.rank()]
    slot[0] = lax.bitcast_convert_type(jnp.broadcast_to(value, shape), jnp.int32)
    slot[1] = jnp.broadcast_to(ids, shape)
    spread(pending, 0, slots)


def _scored(slots: Ref, parity: Scalar, rank: int) -> tuple[jax.Array, jax.Array]:
    return lax.bitcast_convert_type(slots[parity, rank, 0], jnp.float32), slots[parity, rank, 1]
