"""Caches whose positions are sharded over cores: block b of them belongs to core b mod n.

A core keeps its blocks one after the other. That they alternate balances short sequences too, and that all are of one
length, whatever tiles move, keeps movement from changing the result.
"""

from __future__ import annotations

BLOCK = 256
# Tiles of caches are whole steps of so many positions: of fewer, starting the transfers takes longer than they do, and
# the compiler refuses many lengths that are none.
STEP = 128


def most(positions: int, ways: int) -> int:
    """How many of the first `positions` the core with most of them, which is the first, has."""
    whole, rest = divmod(positions, BLOCK * ways)
    return whole * BLOCK + min(rest, BLOCK)


def room(context: int, ways: int) -> int:
    """Whole blocks of a core, in positions, for sequences of up to `context` tokens."""
    return -(-context // (BLOCK * ways)) * BLOCK


def longest_tile(context: int, ways: int) -> int:
    """Whole steps, in positions, that hold all that a core has of a sequence: of longer tiles the rest stays empty."""
    own = room(context, ways) if ways > 1 else context
    return -(-own // STEP) * STEP
