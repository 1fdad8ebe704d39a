"""Attention over a layer's caches, tile after tile."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from ....dsl.program import ir as p
from ....dsl.program.lower.attention import ATTENDED
from ..collectives.peers import Scalar
from ..layout import position_blocks
from ..ops import attend as attention
from ..ops.rope import turns as rope_turns
from . import scopes, transfers
from .context import Core, following
from .signature import StepInput, TileListRef


def attend(op: p.Attend, core: Core) -> None:
    """Every row's own token, then the tiles of all rows, one after the other."""
    if core.program.consecutive:
        (_attend_apart if core.program.caches[op.ring].axes else _attend_consecutive)(op, core)
        return
    ring, program = core.program.caches[op.ring], core.program
    scale = core.number(op.call.options[0][1])
    queries, result = [core.refs[name] for name in op.queries], core.refs[op.result]
    entries = [core.held(name) for name in op.entries]
    # Of latent attention both caches are keys, and the latents are the values too.
    latent = len(queries) > 1
    list_, at = core.given[TileListRef(ring.tile)], core.given[StepInput.AT]
    total = list_[0]
    finished = attention.apart if ring.axes else attention.result

    def own(row: Scalar) -> attention.Running:
        keys = [entry[row] for entry in (entries if latent else entries[:1])]
        found = attention.own([q[row] for q in queries], keys, entries[0 if latent else 1][row], scale)
        return _if_mine(found, at[row], core)

    def first(row: Scalar, _: None) -> None:
        result[row] = finished(own(row))

    lax.fori_loop(0, core.rows, first, None)

    def tile(i: Scalar, carry: tuple[Scalar, attention.Running]) -> tuple[Scalar, attention.Running]:
        slot, so_far = carry
        row, number = transfers.unpacked(list_[i + 1])
        fresh = own(row)
        so_far = jax.tree.map(lambda a, b: jnp.where(number == 0, a, b), fresh, so_far)
        transfers.wait_tile(ring, slot, core)
        held = [core.refs[name].at[slot] for name in ring.buffers]
        keys, values = (held, held[0]) if latent else (held[:1], held[1])
        seen = position_blocks.before(at[row], program)
        so_far = _see(so_far, [q[row] for q in queries], keys, values, number * ring.tile, seen, scale)

        @pl.when(i + ring.slots < total)
        @jax.named_scope(scopes.next_scope(op.result))
        def _() -> None:
            transfers.start_tile(ring, i + ring.slots, slot, core)

        @pl.when(list_[i + 2] >> 16 != row)
        @jax.named_scope(scopes.last_scope(op))
        def _() -> None:
            result[row] = finished(so_far)

        return following(slot, ring.slots), so_far

    lax.fori_loop(0, total, jax.named_scope(scopes.tiles_scope(op))(tile), (jnp.int32(0), own(0)))


def _if_mine(found: attention.Running, position: Scalar, core: Core) -> attention.Running:
    """What a token sees of itself counts once: on the core that has its position."""
    if not core.program.schedule.over_positions:
        return found
    mine = position_blocks.mine(position, core.program)
    return jax.tree.map(lambda a, b: jnp.where(mine, a, b), found, attention.none_of(found))


def _see(
    so_far: attention.Running,
    queries: list[jax.Array],
    keys: list[Any],
    values: Any,
    start: Scalar,
    position: Scalar,
    scale: jax.Array | float,
) -> attention.Running:
    """A tile of a cache, always by as many positions, so that what is moved together changes no bit."""
    length = values.shape[1]
    for at in range(0, length, ATTENDED):
        part = pl.ds(at, min(ATTENDED, length - at))
        k, v = [key.at[:, part] for key in keys], values.at[:, part]
        so_far = attention.tile(so_far, queries, k, v, start + at, position, scale)
    return so_far


def _attend_consecutive(op: p.Attend, core: Core) -> None:
    """Tokens of one sequence: of each other they see those before, and all see the same tiles, each of them once.

    The tokens' heads stand together as the heads of one row, those of a key's head one after the other.
    """
    ring, scale = core.program.caches[op.ring], core.number(op.call.options[0][1])
    queries, result = [core.refs[name] for name in op.queries], core.refs[op.result]
    entries = [core.held(name)[...] for name in op.entries]
    latent, tokens = len(queries) > 1, core.rows
    kv, heads = entries[0].shape[1], result.shape[1]
    each = heads // kv
    by_head = [jnp.stack([entry[:, i] for i in range(kv)]) for entry in entries]  # [kv, tokens, width]
    keys, values = (by_head, by_head[0]) if latent else (by_head[:1], by_head[1])
    asked = [
        jnp.concatenate([q[t, i * each : (i + 1) * each] for i in range(kv) for t in range(tokens)]) for q in queries
    ]
    flat = [a.reshape(kv * tokens, a.shape[-1]) for a in keys]
    so_far = attention.own(asked, flat, values.reshape(kv * tokens, values.shape[-1]), scale)
    number = lax.broadcasted_iota(jnp.int32, (kv * tokens * each, 1), 0)
    before = lax.rem(lax.div(number, jnp.int32(each)), jnp.int32(tokens))
    so_far = attention.tile(so_far, asked, keys, values, 0, before, scale, end=tokens)
    list_, start = core.given[TileListRef(ring.tile)], core.given[StepInput.AT][0]
    total = list_[0]

    def tile(i: Scalar, carry: tuple[Scalar, attention.Running]) -> tuple[Scalar, attention.Running]:
        slot, so_far = carry
        transfers.wait_tile(ring, slot, core)
        held = [core.refs[name].at[slot] for name in ring.buffers]
        keys, values = (held, held[0]) if latent else (held[:1], held[1])
        so_far = _see(so_far, asked, keys, values, i * ring.tile, start, scale)

        @pl.when(i + ring.slots < total)
        @jax.named_scope(scopes.next_scope(op.result))
        def _() -> None:
            transfers.start_tile(ring, i + ring.slots, slot, core)

        return following(slot, ring.slots), so_far

    _, so_far = lax.fori_loop(0, total, jax.named_scope(scopes.tiles_scope(op))(tile), (jnp.int32(0), so_far))
    found = attention.result(so_far)
    for i in range(kv):
        for t in range(tokens):
            at = (i * tokens + t) * each
            result[t, i * each : (i + 1) * each] = found[at : at + each]


def _attend_apart(op: p.Attend, core: Core) -> None:
    """Tokens of one sequence over this core's positions, one token after the other for every tile.

    What they see of each other counts on the core that has the first one's position. With the heads of all cores there
    is no room to see a tile with all tokens at once: what each has seen waits in the result.
    """
    ring, program = core.program.caches[op.ring], core.program
    scale = core.number(op.call.options[0][1])
    queries, result = [core.refs[name] for name in op.queries], core.refs[op.result]
    entries = [core.held(name) for name in op.entries]
    among = [jnp.stack([entry[:, 0]]) for entry in entries]  # [1, tokens, width]
    list_, start = core.given[TileListRef(ring.tile)], core.given[StepInput.AT][0]
    total, seen = list_[0], position_blocks.before(start, program)

    def first(token: Scalar, _: None) -> None:
        asked = [q[token] for q in queries]
        found = attention.own(asked, [entry[token] for entry in entries], entries[0][token], scale)
        found = attention.tile(found, asked, among, among[0], 0, token, scale)
        result[token] = attention.apart(_if_mine(found, start, core))

    lax.fori_loop(0, core.rows, first, None)

    def tile(i: Scalar, slot: Scalar) -> Scalar:
        transfers.wait_tile(ring, slot, core)
        held = [core.refs[name].at[slot] for name in ring.buffers]

        def one(token: Scalar, _: None) -> None:
            so_far = attention.together(result[token])
            asked = [q[token] for q in queries]
            result[token] = attention.apart(_see(so_far, asked, held, held[0], i * ring.tile, seen, scale))

        lax.fori_loop(0, core.rows, one, None)

        @pl.when(i + ring.slots < total)
        def _() -> None:
            transfers.start_tile(ring, i + ring.slots, slot, core)

        return following(slot, ring.slots)

    lax.fori_loop(0, total, tile, jnp.int32(0))


def turns(op: p.RopeTables, core: Core) -> None:
    """What positions turn queries and keys by."""
    scalars: dict[str, Any] = {name: core.scalar(static) for name, static in op.call.options}
    core.refs[op.cos][...], core.refs[op.sin][...] = rope_turns(core.positions(), op.channels, **scalars)
