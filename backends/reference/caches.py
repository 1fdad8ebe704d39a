"""One layer's cache as an attend op sees it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from attrs import frozen
from jax import lax

type Index = int | jax.Array

TILE = 128


@frozen
class Cache:
    """Entries of one layer, for the rows of a pass.

    `data` is `[layers, rows, *entry]` with an axis of positions put into the entry at `axis`; `layer` and `row` say
    which layer's entries and which is the pass's first row. Position p is kept at p modulo the axis's length, so that
    a window needs little more room than its width. `last` is how many positions, its own included, a token sees.
    """

    data: jax.Array
    layer: Index
    row: Index
    axis: int
    last: int | None = None

    @property
    def size(self) -> int:
        """How many positions there is room for; a multiple of `TILE`."""
        return int(self.data.shape[2 + self.axis])

    def tile(self, row: Index, start: Index, length: int = TILE) -> jax.Array:
        """The entries `start .. start + length` of one row of the pass, in f32."""
        entry = list(self.data.shape[2:])
        at: list[Index] = [0] * len(entry)
        entry[self.axis], at[self.axis] = length, start
        taken = lax.dynamic_slice(self.data, (self.layer, self.row + row, *at), (1, 1, *entry))
        return taken[0, 0].astype(jnp.float32)

    def held(self, slots: jax.Array, newest: Index) -> jax.Array:
        """The positions kept in `slots` after `newest` was written; negative where there is none."""
        return newest - (newest - slots) % self.size

    def tiles(self, oldest: Index, newest: Index, length: int = TILE) -> tuple[jax.Array, jax.Array]:
        """The range of tiles that hold what tokens at `oldest .. newest` see; empty where `newest` is negative."""
        first = jnp.maximum(0, oldest - (self.last or self.size) + 1) // length
        wrapped = newest >= self.size
        stop = jnp.where(wrapped, self.size // length, newest // length + 1)
        return jnp.where(wrapped, 0, first), stop

    def sees(self, positions: jax.Array, position: jax.Array) -> jax.Array:
        """Whether a token at `position` sees what is `held` (the two broadcast)."""
        seen = (positions >= 0) & (positions <= position)
        return seen if self.last is None else seen & (positions > position - self.last)


def write(
    data: jax.Array, layer: Index, row: Index, axis: int, entries: jax.Array, position: jax.Array, live: jax.Array
) -> jax.Array:
    """`data` with `entries` `[B, T, *entry]` at `position` `[B, T]` of rows `row ..`, where `live` `[B, T]`."""
    (b, t), size = position.shape, data.shape[2 + axis]

    def one(i: Index, data: jax.Array) -> jax.Array:
        r, c = i // t, i % t
        at: list[Index] = [0] * (data.ndim - 2)
        at[axis] = position[r, c] % size
        entry = jnp.expand_dims(entries[r, c], axis).astype(data.dtype)[None, None]
        corner = (layer, row + r, *at)
        updated = jnp.where(live[r, c], entry, lax.dynamic_slice(data, corner, entry.shape))
        return lax.dynamic_update_slice(data, updated, corner)

    # One place in the program that writes: with two XLA copies the array.
    return one(0, data) if b * t == 1 else lax.fori_loop(0, b * t, one, data)
