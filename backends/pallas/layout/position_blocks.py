"""Positions of caches that are shared out over cores, as `dsl.schedule.blocks` says: who has which, and where."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ....dsl.program import ir as p
from ....dsl.schedule.blocks import BLOCK
from ..collectives.peers import Cores, Scalar


def cores(program: p.Program) -> Cores:
    """The cores that share out positions; there are some."""
    return Cores(program.schedule.mesh, program.schedule.over_positions)


def before(position: jax.Array, program: p.Program) -> jax.Array:
    """How many of the positions before one this core has: those that it attends to."""
    if not program.schedule.over_positions:
        return position
    group, first = cores(program), jnp.maximum(position, 0)
    turn = BLOCK * group.count
    return first // turn * BLOCK + jnp.clip(first % turn - group.rank() * BLOCK, 0, BLOCK)


def mine(position: Scalar, program: p.Program) -> jax.Array | bool:
    """Whether this core has a position; -1 belongs to the first."""
    if not program.schedule.over_positions:
        return True
    group = cores(program)
    return jnp.maximum(position, 0) // BLOCK % group.count == group.rank()


def place(position: Scalar, program: p.Program) -> Scalar:
    """Where the core that has a position keeps it; that of -1 is the first place."""
    first, ways = jnp.maximum(position, 0), program.schedule.ways(program.schedule.over_positions)
    return first // (BLOCK * ways) * BLOCK + first % BLOCK if ways > 1 else first


def in_order(array: jax.Array, ways: int) -> jax.Array:
    """`[…, positions, n]` of one core after the other, in whole blocks, in the order of positions."""
    *lead, positions, width = array.shape
    if ways == 1:
        return array
    blocks = array.reshape(*lead, ways, -1, BLOCK, width)
    return blocks.swapaxes(-4, -3).reshape(*lead, positions, width)


def by_core(array: jax.Array, ways: int) -> jax.Array:
    """`[…, positions, n]` in the order of positions, in whole blocks, of one core after the other."""
    *lead, positions, width = array.shape
    if ways == 1:
        return array
    blocks = array.reshape(*lead, -1, ways, BLOCK, width)
    return blocks.swapaxes(-4, -3).reshape(*lead, positions, width)
