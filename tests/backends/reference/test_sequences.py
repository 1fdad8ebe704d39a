"""What decoders know of their rows, with passes that only count."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from mks.backends.reference.saved_rows import RowStore
from mks.backends.reference.sequences import Sequences, lost, saved_row
from mks.backends.reference.states import Room, Store

VOCAB = 100

type Made = list[tuple[list[int], int, int]]


def reading(made: Made, last_only: bool) -> Any:
    """A pass that gives each token's id as its logits."""

    def read(tokens: np.ndarray, at: int, real: int) -> np.ndarray:
        made.append((tokens[0].tolist(), at, real))
        ids = tokens.reshape(-1, 1).astype(np.float32)
        return ids[real - 1 : real] if last_only else ids

    return read


def test_a_prompt_is_made_of_passes() -> None:
    """Only the last is padded; logits are those of real tokens, or of the last one."""
    made: Made = []
    rows = Sequences(2, 64, 20, vocab=VOCAB)
    ids = list(range(1, 12))

    rows.restored(0, 3)
    assert rows.prefill(0, ids, 3, False, reading(made, False)).reshape(-1).tolist() == ids
    assert [at for _, at, _ in made] == [3 + sum(real for _, _, real in made[:i]) for i in range(len(made))]
    assert sum(real for _, _, real in made) == len(ids)
    assert rows.prefill(0, ids, 14, True, reading(made, True)).tolist() == [[11]]


def test_what_can_be_saved() -> None:
    """A row that one program alone has read, piece after piece; not one that was stepped, or whose pass failed."""
    rows, read = Sequences(2, 64, 8, 8, vocab=VOCAB), reading([], True)
    rows.prefill(0, [1] * 8, 0, True, read)
    rows.prefill(0, [1] * 5, 8, True, read)
    assert (rows.length(0), rows.length(1)) == (13, None)

    rows.step([[], [1]], [13, 0], -1)
    rows.prefill(1, [1] * 8, 1, True, read)
    assert rows.length(1) is None
    rows.step([[], [1]], [13, 9], -1)
    assert rows.length(0) == 13
    rows.step([[1], []], [13, 0], -1)
    assert rows.length(0) is None

    rows.restored(0, 13)

    def fails(*_: Any) -> np.ndarray:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        rows.prefill(0, [1], 13, True, fails)
    assert rows.length(0) is None
    with pytest.raises(ValueError, match="row 0 cannot go on at position 13: it holds 0 tokens"):
        rows.prefill(0, [1], 13, True, read)
    rows.prefill(0, [1], 0, True, read)


def test_rows_that_are_given_no_token() -> None:
    """Their ids are 0 and their positions what the kernel wants, whatever was given."""
    rows = Sequences(3, 8, 8, vocab=VOCAB)
    rows.restored(0, 7)
    made = rows.step([[5], [], [7]], [7, 99, 0], -1, {2, 1})

    assert [each.tolist() for each in (made.ids, made.start, made.counts)] == [[[5], [0], [7]], [7, -1, 0], [1, 0, 1]]
    assert made.ids.dtype == made.start.dtype == np.int32
    assert made.logits == (2,)


def test_numbers_of_any_kind() -> None:
    """Python's and numpy's integers, in lists, tuples and arrays; empty ones are no tokens."""
    rows = Sequences(2, 32, 8, vocab=VOCAB, tokens_per_row=2)
    for ids in (range(3), (np.uint64(1), np.int8(2), 3), np.arange(3, dtype=np.uint8), jnp.arange(3)):
        assert rows.prefill(np.int64(1), ids, np.int32(0), False, reading([], False)).shape == (3, 1)  # type: ignore[arg-type]
    tokens = [np.array([]), np.array([VOCAB - 1, 0], np.uint16)]
    made = rows.step(tokens, np.array([0, 3]), -1, np.array([1]))  # type: ignore[arg-type]
    assert (made.ids.tolist(), made.start.tolist(), made.logits) == ([[0, 0], [VOCAB - 1, 0]], [-1, 3], (1,))


@pytest.mark.parametrize(
    ("tokens", "positions", "message"),
    [
        ([[1], [1]], [3, 8], "cannot read 1 ids at 8 into row 1 of 8 positions"),
        ([[1], [1, 1]], [3, 7], "cannot read 2 ids at 7 into row 1"),
        ([[1], [1]], [3, -1], "cannot read 1 ids at -1 into row 1"),
        ([[1], [1, 1, 1]], [3, 0], "cannot read 3 ids into row 1: a step takes up to 2"),
        ([[1]], [3, 0], "1 lists of tokens and 2 positions for 2 rows"),
        ([[1], [1]], [3], "2 lists of tokens and 1 positions for 2 rows"),
        ([[], [1]], [3, 3], "row 1 cannot go on at position 3: it holds 4 tokens"),
        ([[], [1]], [3, 5], "row 1 cannot go on at position 5: it holds 4 tokens"),
        ([[1], [1]], [3, 5], "row 1 cannot go on at position 5: it holds 0 tokens"),
        ([[1], [VOCAB]], [3, 0], f"the tokens of row 1: there is no token {VOCAB}, ids are 0 to {VOCAB - 1}"),
        ([[1], [1, -1]], [3, 0], "there is no token -1"),
        ([[2**70], [1]], [3, 0], f"there is no token {2**70}"),
        ([1, 2], [3, 0], "the tokens of row 0 must be a list of integers, not 1"),
        ([[1], None], [3, 0], "the tokens of row 1 must be a list of integers, not None"),
        ([[1], [[1]]], [3, 0], "the tokens of row 1 must be a list of integers"),
        ([[1], [True]], [3, 0], "the tokens of row 1 must be a list of integers"),
        ([np.array([1.0]), [1]], [3, 0], "the tokens of row 0 must be a list of integers"),
        (["1", [1]], [3, 0], "the tokens of row 0 must be a list of integers"),
        ([[1], [1]], [3.0, 0], "the position of row 0 must be an integer, not 3.0"),
        ([[1], [1]], [3, None], "the position of row 1 must be an integer, not None"),
        (None, [3, 0], "tokens and positions must be lists"),
    ],
)
def test_wrong_steps(tokens: Any, positions: Any, message: str) -> None:
    """Positions beyond the context or not where a row ends, too many tokens, lists of other lengths."""
    rows = Sequences(2, 8, 8, tokens_per_row=2, vocab=VOCAB)
    rows.restored(0, 3)
    if "holds 4" in message:
        rows.restored(1, 2)
        rows.step([[], [1, 1]], [0, 2], 0)
    with pytest.raises(ValueError, match=message):
        rows.step(tokens, positions, 0)
    assert rows.length(0) == 3


@pytest.mark.parametrize("logits", [[2], [-1], [True], [0.0], ["0"], "0", 0, None])
def test_wrong_rows_of_logits(logits: Any) -> None:
    """Rows that there are not, and what is no number; the rows stay as they are."""
    rows = Sequences(2, 8, 8, vocab=VOCAB)
    with pytest.raises(ValueError, match="the rows whose logits are wanted"):
        rows.step([[1], []], [0, 0], 0, logits)
    rows.step([[1], []], [0, 0], 0, [0])


def test_a_step_that_is_taken_back() -> None:
    """Where entries are by position, a row may go on after any token of its last step; nowhere before it."""
    rows = Sequences(1, 16, 8, tokens_per_row=4, rewinds=True, vocab=VOCAB)
    rows.restored(0, 4)
    rows.step([[1, 2, 3]], [4], 0)
    for position in (4, 8):
        with pytest.raises(ValueError, match=f"cannot go on at position {position}: it holds 7 tokens"):
            rows.step([[9]], [position], 0)
    rows.step([[9]], [5], 0)
    rows.step([[9]], [6], 0)
    rows.step([[9]], [0], 0)


@pytest.mark.parametrize(
    ("row", "ids", "start", "message"),
    [
        (0, [], 0, "cannot read 0 ids at 0 into row 0"),
        (0, [1] * 9, 0, "cannot read 9 ids at 0 into row 0: it takes 1 to 8 in a call"),
        (0, [1, 1], 15, "cannot read 2 ids at 15 into row 0: .* has 16 positions"),
        (0, [1], -1, "cannot read 1 ids at -1 into row 0"),
        (2, [1], 0, "there is no row 2, they are 0 to 1"),
        (-1, [1], 0, "there is no row -1"),
        (True, [1], 0, "row must be an integer, not True"),
        (0, [1], 4, "row 0 cannot go on at position 4: it holds 3 tokens"),
        (1, [1], 5, "row 1 cannot go on at position 5: it holds 0 tokens"),
        (0, [1], 3.0, "start must be an integer, not 3.0"),
        (0, [VOCAB], 3, f"the ids for row 0: there is no token {VOCAB}, ids are 0 to {VOCAB - 1}"),
        (0, [5, -1], 3, "there is no token -1"),
        (0, [2**31], 3, f"there is no token {2**31}"),
        (0, [1.7], 3, "the ids for row 0 must be a list of integers"),
        (0, ["5"], 3, "the ids for row 0 must be a list of integers"),
        (0, "123", 3, "the ids for row 0 must be a list of integers, not 123"),
        (0, np.array([[1]]), 3, "the ids for row 0 must be a list of integers"),
        (0, np.array([True]), 3, "the ids for row 0 must be a list of integers"),
        (0, None, 3, "the ids for row 0 must be a list of integers"),
    ],
)
def test_wrong_prompts(row: Any, ids: Any, start: Any, message: str) -> None:
    """None or too many ids or such as there are not, not where a row ends, and rows that are not there."""
    rows = Sequences(2, 16, 8, vocab=VOCAB)
    rows.restored(0, 3)
    with pytest.raises(ValueError, match=message):
        rows.prefill(row, ids, start, False, reading([], False))
    assert rows.length(0) == 3


def row_store(context: int, *, cuts: bool = True) -> RowStore:
    """Of one cache, whose entries can be cut, or of one state."""
    shape = (1, 2, context, 4) if cuts else (1, 2, 4)
    return RowStore(Room({"a": (Store("a", shape, "f32", None, 0 if cuts else None),)}), context)


def test_a_part_of_what_was_saved() -> None:
    """Only where caches can be cut, and only what was saved by a decoder alike."""
    cache, state = row_store(128), row_store(128, cuts=False)
    saved = cache.take({"a": jnp.ones((1, 2, 128, 4))}, 1, 8)
    whole = state.take({"a": jnp.ones((1, 2, 4))}, 1, 8)

    assert saved_row(saved, np.int64(8), cache) is saved  # type: ignore[arg-type]
    assert saved_row(saved, 3, cache) is saved
    assert saved_row(whole, 8, state) is whole
    for store, row, length in ((state, whole, 3), (cache, saved, 0), (cache, saved, -1), (cache, saved, 9)):
        with pytest.raises(ValueError, match=f"cannot restore {length} tokens of 8"):
            saved_row(row, length, store)
    for other in (state, row_store(256)):
        with pytest.raises(ValueError, match="a decoder with another model, context or chunk"):
            saved_row(saved, 8, other)
    with pytest.raises(ValueError, match=r"length must be an integer, not 2\.5"):
        saved_row(saved, 2.5, cache)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="what is restored is what `save` gave, not None"):
        saved_row(None, 3, cache)  # type: ignore[arg-type]
    for row in (-1, 2, "0"):
        with pytest.raises(ValueError, match="row"):
            Sequences(2, 32, 8, vocab=VOCAB).length(row)  # type: ignore[arg-type]


class Failed:
    """An array that a call would have made, which failed after it was begun."""

    def is_deleted(self) -> bool:
        return False

    def block_until_ready(self) -> None:
        raise RuntimeError("the chip is on fire")


def test_states_of_a_call_that_failed() -> None:
    """Those that were given away for it, and those that it did not make."""
    whole, given = jnp.zeros(2), jnp.zeros(2)
    assert not lost({"a": whole, "b": given})
    assert lost({"a": whole, "b": Failed()})  # type: ignore[dict-item]
    given.delete()
    assert lost({"a": whole, "b": given})
