"""Attention over a layer's caches, tile after tile."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from ...dsl.program import ir as p
from . import places, transfers
from .core import Core, following
from .ops import attend as attention
from .ops.rope import turns as rope_turns
from .peers import Scalar


def attend(op: p.Attend, core: Core) -> None:
    """Every row's own token, then the tiles of all rows, one after the other."""
    ring, program = core.program.caches[op.ring], core.program
    scale = float(program.instance.number(op.call.options[0][1]))
    queries, result = [core.refs[name] for name in op.queries], core.refs[op.result]
    entries = [core.held(name) for name in op.entries]
    # Of latent attention both caches are keys, and the latents are the values too.
    latent = len(queries) > 1
    list_, at = core.refs[f"tiles of {ring.tile}"], core.refs["at"]
    total = list_[0]

    def own(row: Scalar) -> attention.Running:
        keys = [entry[row] for entry in (entries if latent else entries[:1])]
        return attention.own([q[row] for q in queries], keys, entries[0 if latent else 1][row], scale)

    def first(row: Scalar, _: None) -> None:
        result[row] = attention.result(own(row))

    lax.fori_loop(0, core.rows, first, None)

    def tile(i: Scalar, carry: tuple[Scalar, attention.Running]) -> tuple[Scalar, attention.Running]:
        slot, so_far = carry
        row, number = transfers.unpacked(list_[i + 1])
        fresh = own(row)
        so_far = jax.tree.map(lambda a, b: jnp.where(number == 0, a, b), fresh, so_far)
        transfers.wait_tile(ring, slot, core)
        held = [core.refs[name].at[slot] for name in ring.buffers]
        keys, values = (held, held[0]) if latent else (held[:1], held[1])
        so_far = attention.tile(so_far, [q[row] for q in queries], keys, values, number * ring.tile, at[row], scale)

        @pl.when(i + ring.slots < total)
        @jax.named_scope(places.next_scope(op))
        def _() -> None:
            transfers.start_tile(ring, i + ring.slots, slot, core)

        @pl.when(list_[i + 2] >> 16 != row)
        @jax.named_scope(places.last_scope(op))
        def _() -> None:
            result[row] = attention.result(so_far)

        return following(slot, ring.slots), so_far

    lax.fori_loop(0, total, jax.named_scope(places.tiles_scope(op))(tile), (jnp.int32(0), own(0)))


def turns(op: p.Turns, core: Core) -> None:
    """What positions turn queries and keys by."""
    scalars: dict[str, Any] = {name: core.scalar(static) for name, static in op.call.options}
    core.refs[op.cos][...], core.refs[op.sin][...] = rope_turns(core.positions(), op.channels, **scalars)
