"""The choice of experts."""

from __future__ import annotations

from functools import reduce
from operator import add

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

_LANE_BITS = 7
_LANES = 1 << _LANE_BITS
_ROWS = 8
_WORD_BITS = 5


def route(
    score: jax.Array,
    bias: jax.Array | float,
    *,
    top: int,
    eps: float = 1e-20,
    scale: float = 1,
    groups: int = 1,
    keep: int = 1,
) -> tuple[jax.Array, jax.Array]:
    """`score [B, n]`, `bias [1, n]` or a number, to f32 weights `[B, n]` and int32 `[B, n]`, 1 for the chosen.

    Chosen are the `top` largest of score + bias, the lowest index on ties; the weights are their scores over
    (their sum + eps), times `scale`, and zero elsewhere. With several groups only those `keep` take part whose two
    largest sum to most.
    """
    choice = score + bias
    if groups > 1:
        choice = _of_groups(choice, groups, keep)
    chosen, total = _largest(choice, score, top)
    weights = score / (total + eps) * scale
    return jnp.where(chosen, weights, 0.0), chosen.astype(jnp.int32)


def _of_groups(choice: jax.Array, groups: int, keep: int) -> jax.Array:
    """`choice [B, n]` with -inf outside of the `keep` strongest groups, the lowest on ties."""
    width = choice.shape[-1] // groups
    pieces = [choice[:, i * width : (i + 1) * width] for i in range(groups)]
    strength = []
    for piece in pieces:
        place = lax.broadcasted_iota(jnp.int32, piece.shape, 1)
        first = jnp.max(piece, axis=-1, keepdims=True)
        at = jnp.min(jnp.where(piece == first, place, width), axis=-1, keepdims=True)
        strength.append(first + jnp.max(jnp.where(place == at, -jnp.inf, piece), axis=-1, keepdims=True))
    kept = []
    for i, (own, piece) in enumerate(zip(strength, pieces, strict=True)):
        beaten = ((other >= own) if j < i else (other > own) for j, other in enumerate(strength) if j != i)
        kept.append(jnp.where(reduce(add, (each.astype(jnp.int32) for each in beaten)) < keep, piece, -jnp.inf))
    return jnp.concatenate(kept, axis=-1)


def _largest(choice: jax.Array, score: jax.Array, top: int) -> tuple[jax.Array, jax.Array]:
    """Which of `choice [B, n]` are the `top` largest of their row, the lowest index on ties, and their scores' sum.

    The former is bool `[B, n]`, the latter `[B, 1]`.
    """
    (b, n), slots = choice.shape, 1 << (top - 1).bit_length()
    if b > _ROWS or (n > _LANES and -(-n // _LANES) * slots > _LANES):
        chosen = _by_rounds(choice, top)
        return chosen, jnp.sum(jnp.where(chosen, score, 0.0), axis=-1, keepdims=True)
    last, at, total = _by_ranks(_whole(choice, -jnp.inf), _whole(score, 0), b, top, slots)
    index = lax.broadcasted_iota(jnp.int32, choice.shape, 1)
    return (choice > last) | ((choice == last) & (index <= at)), total


def _by_rounds(choice: jax.Array, top: int) -> jax.Array:
    """The largest, and again: little code for any size, but each round waits for the one before."""
    n = choice.shape[-1]
    index = lax.broadcasted_iota(jnp.int32, choice.shape, 1)

    def one(_: jax.Array, chosen: jax.Array) -> jax.Array:
        left = jnp.where(chosen > 0, -jnp.inf, choice)
        best = (left == jnp.max(left, axis=-1, keepdims=True)) & (chosen == 0)
        at = jnp.min(jnp.where(best, index, n), axis=-1, keepdims=True)
        return jnp.where(index == at, 1, chosen)

    return lax.fori_loop(0, top, one, jnp.zeros(choice.shape, jnp.int32)) > 0


def _whole(values: jax.Array, fill: float) -> list[jax.Array]:
    """`[B, n]` made up to whole registers, which are `[8, 128]`."""
    b, values = values.shape[0], _padded(values, fill)
    n = values.shape[1]
    if b == 1:
        values = jnp.broadcast_to(values, (_ROWS, n))
    elif b < _ROWS:
        values = jnp.concatenate([values, jnp.zeros((_ROWS - b, n))])
    return [values[:, at : at + _LANES] for at in range(0, n, _LANES)]


def _padded(values: jax.Array, fill: float) -> jax.Array:
    """`[B, n]` with `n` made up to whole registers."""
    b, n = values.shape
    more = -n % _LANES
    return jnp.concatenate([values, jnp.full((b, more), fill)], axis=1) if more else values


def _by_ranks(
    choice: list[jax.Array], score: list[jax.Array], b: int, top: int, slots: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The least of the chosen, its index and the sum of their scores, `[b, 1]`, of the first `b` rows.

    Ranks come from comparing each with each, so that nothing waits for a round before. All that is chosen stands in
    the `top` lanes whose own largest are the largest: these few are brought together before.
    """
    lane = lax.broadcasted_iota(jnp.int32, (_ROWS, _LANES), 1)
    if len(choice) == 1:
        rivals, scores, index = choice[0], score[0], lane
        columns = [lax.broadcasted_iota(jnp.int32, (_LANES, _LANES), 0)] * b
    else:
        by_slot = [_lanes(choice, row, slots) for row in range(b)]
        every = [_across(each, slots) for each in by_slot]
        source = jnp.concatenate([*every, *every[:1] * (_ROWS - b)])
        piece = lane >> (slots.bit_length() - 1)
        rivals, scores = _gathered(choice, source, piece), _gathered(score, source, piece)
        rivals = jnp.where(piece < len(choice), rivals, -jnp.inf)
        index = piece * _LANES + source
        columns = [jnp.concatenate([each + i * _LANES for i in range(len(choice))]) for each in by_slot]
    rank = jnp.concatenate([_ranks(rivals[i : i + 1], index[i : i + 1], columns[i]) for i in range(b)])
    rivals, scores, index = rivals[:b], scores[:b], index[:b]
    last = jnp.max(jnp.where(rank == top - 1, rivals, -jnp.inf), axis=-1, keepdims=True)
    # As f32, which takes one step where int32 takes two.
    at = jnp.max(jnp.where(rank == top - 1, index, 0).astype(jnp.float32), axis=-1, keepdims=True)
    total = jnp.sum(jnp.where(rank < top, scores, 0.0), axis=-1, keepdims=True)
    return last, at.astype(jnp.int32), total


def _lanes(pieces: list[jax.Array], row: int, slots: int) -> jax.Array:
    """The lanes that hold the largest of a row, one per slot, by rank: `[slots, 128]`, equal in all lanes."""
    lane = lax.broadcasted_iota(jnp.int32, (1, _LANES), 1)
    best, at = pieces[0][row : row + 1], lane
    for i, piece in enumerate(pieces[1:], 1):
        own = piece[row : row + 1]
        best, at = jnp.maximum(own, best), jnp.where(own > best, lane + i * _LANES, at)
    slot = lax.broadcasted_iota(jnp.int32, (slots, _LANES), 0).astype(jnp.float32)
    mine = jnp.where(_ranks(best, at, _column(at)) == slot, lane.astype(jnp.float32), 0.0)
    found = jnp.sum(mine, axis=1, keepdims=True).astype(jnp.int32) & (_LANES - 1)  # a lane even where some are NaN
    return jnp.broadcast_to(found, slot.shape)


def _across(by_slot: jax.Array, slots: int) -> jax.Array:
    """`[slots, 128]`, equal in all lanes, as `[1, 128]`, again and again."""
    down, lane = (lax.broadcasted_iota(jnp.int32, by_slot.shape, axis) for axis in (0, 1))
    return jnp.sum(jnp.where(lane & (slots - 1) == down, by_slot, 0), axis=0, keepdims=True)


def _gathered(pieces: list[jax.Array], source: jax.Array, piece: jax.Array) -> jax.Array:
    """From each place's piece what stands in its source lane; all are `[8, 128]`."""
    out = jnp.take_along_axis(pieces[0], source, axis=1)
    for i, each in enumerate(pieces[1:], 1):
        out = jnp.where(piece == i, jnp.take_along_axis(each, source, axis=1), out)
    return out


def _column(row: jax.Array) -> jax.Array:
    """`[1, 128]` as `[128, 128]`, equal in all lanes."""
    return jnp.broadcast_to(row, (_LANES, _LANES)).T


def _ranks(row: jax.Array, index: jax.Array, index_column: jax.Array) -> jax.Array:
    """How many of `row [1, 128]` go before each, f32; `index_column [m, 128]` has the indices of the first m.

    Those behind have no say.
    """
    column = _column(row)[: index_column.shape[0]]
    before = (column > row) | ((column == row) & (index_column < index))
    return jnp.sum(jnp.where(before, 1.0, 0.0), axis=0, keepdims=True)


def list_chosen(
    chosen: jax.Array, first: jax.Array | int, count: int, ids: jax.Ref, scope: str = "listed"
) -> jax.Array:
    """Write which of the `count` experts from `first` on are chosen by any row of int32 `chosen [B, n]`.

    To int32 `ids [count + 1]` in SMEM: how many, and then their numbers less `first`, ascending; returns how many. What
    stands after them is not written. `scope` is a named scope of what is done for each.
    """
    skipped, found = first >> _WORD_BITS, jnp.int32(0)
    words = _words(chosen, first, count)
    # All are on their way before the first is needed: each takes long to get from the vector unit to the scalar one.
    for i, word in enumerate([words[i, 0] for i in range(_reached(chosen.shape[-1], first, count))]):
        start = ((skipped + i) << _WORD_BITS) - first

        def one(state: tuple[jax.Array, jax.Array], start: jax.Array | int = start) -> tuple[jax.Array, jax.Array]:
            left, found = state
            next = lax.clz(left)
            ids[found + 1] = start + next
            return left ^ lax.shift_right_logical(jnp.int32(-(2**31)), next), found + 1

        _, found = lax.while_loop(lambda state: state[0] != 0, jax.named_scope(scope)(one), (word, found))
    ids[0] = found
    return found


def _reached(n: int, first: jax.Array | int, count: int) -> int:
    """How many words of `n` bits the `count` from `first` on may touch."""
    width = 1 << _WORD_BITS
    begin = first % width if isinstance(first, int) else width - 1
    return min(-(-(begin + count) // width), -(-n // width))


def _words(chosen: jax.Array, first: jax.Array | int, count: int) -> jax.Array:
    """Who of the `count` experts from `first` on is chosen, as bits of words, each from its highest bit on.

    int32 `[words, 128]`, equal in all lanes, of which the first word is the one that has the bit of `first`.
    """
    n, width = chosen.shape[-1], 1 << _WORD_BITS
    expert = lax.broadcasted_iota(jnp.int32, (1, n), 1)
    mine = (jnp.max(chosen, axis=0, keepdims=True) > 0) & (expert >= first) & (expert < first + count)
    bits = _padded(jnp.where(mine, 1.0, 0.0), 0)
    rows = _reached(n, first, count) + -_reached(n, first, count) % _ROWS
    row, lane = (lax.broadcasted_iota(jnp.int32, (rows, _LANES), axis) for axis in (0, 1))
    start = ((first >> _WORD_BITS) + row) << _WORD_BITS  # each word's first expert
    own = jnp.zeros((rows, _LANES))
    for at in range(0, n, _LANES):
        here = (at + lane >= start) & (at + lane < start + width)
        own = jnp.where(here, bits[:, at : at + _LANES], own)
    high = (lane & (width // 2)) == 0
    halves = jnp.concatenate([jnp.where(high, own, 0), jnp.where(high, 0, own)]).astype(jnp.bfloat16)
    place = lax.broadcasted_iota(jnp.int32, (_LANES, _LANES), 0)
    weight = jnp.left_shift(1, ~place & (width // 2 - 1)).astype(jnp.float32).astype(jnp.bfloat16)
    # Sixteen bits a word: sums of their powers of two are exact.
    values = jnp.dot(halves, weight, preferred_element_type=jnp.float32).astype(jnp.int32)
    return values[:rows] << (width // 2) | values[rows:]


def weight_of(weights: jax.Array | jax.Ref, expert: jax.Array | int) -> jax.Array:
    """An expert's weight in each row, `[B, 1]`, of `weights [B, n]`, a value or a reference to one in VMEM."""
    n = weights.shape[-1]
    if isinstance(weights, jax.Ref) and n % _LANES == 0:
        start = pl.multiple_of(jnp.int32(expert) >> _LANE_BITS << _LANE_BITS, _LANES)
        weights, expert = weights[:, pl.ds(start, _LANES)], expert & (_LANES - 1)
    place = lax.broadcasted_iota(jnp.int32, weights.shape, 1)
    return jnp.sum(jnp.where(place == expert, weights[...], 0.0), axis=-1, keepdims=True)
