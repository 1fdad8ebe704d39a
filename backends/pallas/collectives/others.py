"""Collectives that add nothing up: gathers, merged softmaxes, the greatest.

`collectives` says why no slot is written too soon.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from ....dsl.targets.lanes import LANES
from ..ops.attend import merged
from .messages import Pending, as_f32, received, send_home, sent, spread
from .peers import Ref, Scalar


def finish_softmax_merge(pending: Pending, heads: int) -> list[jax.Array]:
    """The means of the values over all positions, f32 `[rows, n]` for each of this core's heads."""
    partials, parity = pending.buffers["partials"], pending.parity
    received(pending, 0, partials)
    each, found = pending.plan.width // heads, []
    for first in range(0, pending.plan.width, each):
        parts = [partials[parity, i, :, first : first + each] for i in range(pending.plan.cores)]
        found.append(merged(parts))
    sent(pending, 0, partials)
    return found


def start_softmax_merge(pending: Pending, value: Ref) -> None:
    """Send each core its heads of the softmaxes of all, `[rows, heads, n + 128]`."""
    cores, outgoing = pending.cores, pending.buffers["outgoing"]
    _, heads, width = value.shape
    each = heads // cores.count

    def home(core: Scalar, _: None) -> None:
        for i in range(each):
            outgoing[core, :, i * width : (i + 1) * width] = value[:, core * each + i]

    lax.fori_loop(0, cores.count, home, None)
    send_home(pending)


def finish_gather(pending: Pending) -> list[jax.Array]:
    """All shares in the order of ranks, f32 `[rows, width]` each."""
    slots, width = pending.buffers["slots"], pending.plan.width
    received(pending, 0, slots)
    shares = [as_f32(slots[pending.parity, i, :, :width]) for i in range(slots.shape[1])]
    sent(pending, 0, slots)
    return shares


def finish_argmax(pending: Pending) -> tuple[jax.Array, jax.Array]:
    """The greatest value, f32 `[rows, 1]`, and its id, int32 `[rows, 1]`: the lowest of those with that value."""
    slots, parity = pending.buffers["slots"], pending.parity
    received(pending, 0, slots)
    best, chosen = _scored(slots, parity, 0)
    for rank in range(1, pending.plan.cores):
        value, ids = _scored(slots, parity, rank)
        better = (value > best) | ((value == best) & (ids < chosen))
        best, chosen = jnp.where(better, value, best), jnp.where(better, ids, chosen)
    sent(pending, 0, slots)
    return best[:, :1], chosen[:, :1]


def start_argmax(pending: Pending, value: jax.Array, ids: jax.Array) -> None:
    """Send this core's largest values, f32 `[rows, 1]`, and their ids, int32 `[rows, 1]`."""
    slots, shape = pending.buffers["slots"], (pending.plan.rows, LANES)
    slot = slots.at[pending.parity, pending.cores.rank()]
    slot[0] = lax.bitcast_convert_type(jnp.broadcast_to(value, shape), jnp.int32)
    slot[1] = jnp.broadcast_to(ids, shape)
    spread(pending, 0, slots)


def _scored(slots: Ref, parity: Scalar, rank: int) -> tuple[jax.Array, jax.Array]:
    return lax.bitcast_convert_type(slots[parity, rank, 0], jnp.float32), slots[parity, rank, 1]
