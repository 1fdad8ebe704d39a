"""Several greedy decode steps in one device call."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from ..emit.shard_map import Step

type _Carry = tuple[jax.Array, jax.Array, jax.Array, jax.Array, dict[str, jax.Array]]


def several(
    step: Step,
    context: int,
    room: int,
    tokens: jax.Array,
    positions: jax.Array,
    count: jax.Array,
    ends: jax.Array,
    weights: dict[str, jax.Array],
    held: dict[str, jax.Array],
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Up to `count` steps, at most `room`: ids int32 `[room, rows]`, -1 where a row was not live, and what is held.

    `tokens`, `positions` as `step` takes them. A row stops being live after an id that is among `ends` int32 `[n]`,
    and when there is no position left for its next token; when no row is live, no more steps are made.
    """

    def goes_on(carry: _Carry) -> jax.Array:
        i, _, positions, _, _ = carry
        return (i < jnp.minimum(count, room)) & (positions >= 0).any()

    def one(carry: _Carry) -> _Carry:
        i, tokens, positions, outputs, held = carry
        live = positions >= 0
        ids, _, held = step(tokens, positions, weights, held)
        ids = jnp.where(live, ids, -1)
        ended = (ids[:, None] == ends).any(axis=1) | (positions + 1 >= context)
        after = jnp.where(live & ~ended, positions + 1, -1)
        return i + 1, jnp.maximum(ids, 0), after, outputs.at[i].set(ids), held

    outputs = jnp.full((room, tokens.shape[0]), -1, jnp.int32)
    _, _, _, outputs, held = lax.while_loop(goes_on, one, (jnp.int32(0), tokens, positions, outputs, dict(held)))
    return outputs, held
