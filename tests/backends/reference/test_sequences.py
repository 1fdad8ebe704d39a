"""What decoders know of their rows, with passes that only count."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from mks.backends.reference.saved_rows import SavedRow
from mks.backends.reference.sequences import Sequences, lost, saved_row

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
    rows = Sequences(2, 64, 20)
    ids = list(range(1, 12))

    assert rows.prefill(0, ids, 3, False, reading(made, False)).reshape(-1).tolist() == ids
    assert [at for _, at, _ in made] == [3 + sum(real for _, _, real in made[:i]) for i in range(len(made))]
    assert sum(real for _, _, real in made) == len(ids)
    assert rows.prefill(0, ids, 3, True, reading(made, True)).tolist() == [[11]]


def test_what_can_be_saved() -> None:
    """A row that one program alone has read, piece after piece; not one that was stepped, or whose pass failed."""
    rows, read = Sequences(2, 64, 8, 8), reading([], True)
    rows.prefill(0, [1] * 8, 0, True, read)
    rows.prefill(0, [1] * 5, 8, True, read)
    assert (rows.length(0), rows.length(1)) == (13, None)

    rows.prefill(1, [1] * 8, 4, True, read)
    assert rows.length(1) is None
    rows.step([[], [1]], [13, 12], -1)
    assert rows.length(0) == 13
    rows.step([[1], []], [13, 0], -1)
    assert rows.length(0) is None

    rows.restored(0, 13)

    def fails(*_: Any) -> np.ndarray:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        rows.prefill(0, [1], 13, True, fails)
    assert rows.length(0) is None


def test_rows_that_are_given_no_token() -> None:
    """Their ids are 0 and their positions what the kernel wants, whatever was given."""
    ids, at, counts = Sequences(3, 8, 8).step([[5], [], [7]], [7, 99, 0], -1)

    assert (ids.tolist(), at.tolist(), counts.tolist()) == ([[5], [0], [7]], [7, -1, 0], [1, 0, 1])
    assert ids.dtype == at.dtype == np.int32


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
    ],
)
def test_wrong_steps(tokens: list[list[int]], positions: list[int], message: str) -> None:
    """Positions beyond the context or not where a row ends, too many tokens, lists of other lengths."""
    rows = Sequences(2, 8, 8, tokens_per_row=2)
    rows.restored(0, 3)
    if "cannot go on" in message:
        rows.step([[], [1, 1]], [0, 2], 0)
    with pytest.raises(ValueError, match=message):
        rows.step(tokens, positions, 0)
    assert rows.length(0) == 3


def test_a_step_that_is_taken_back() -> None:
    """Where entries are by position, a row may go on after any token of its last step; nowhere before it."""
    rows = Sequences(1, 16, 8, tokens_per_row=4, rewinds=True)
    rows.step([[1, 2, 3]], [4], 0)
    for position in (4, 8):
        with pytest.raises(ValueError, match=f"cannot go on at position {position}: it holds 7 tokens"):
            rows.step([[9]], [position], 0)
    rows.step([[9]], [5], 0)
    rows.step([[9]], [6], 0)
    rows.step([[9]], [0], 0)


@pytest.mark.parametrize(
    ("row", "count", "start"), [(0, 0, 0), (0, 9, 0), (0, 2, 15), (0, 1, -1), (2, 1, 0), (-1, 1, 0)]
)
def test_wrong_prompts(row: int, count: int, start: int) -> None:
    """None or too many ids, beyond the context, and rows that are not there."""
    with pytest.raises(ValueError, match=f"cannot read {count} ids at {start} into row {row}"):
        Sequences(2, 16, 8).prefill(row, [1] * count, start, False, reading([], False))


def test_a_part_of_what_was_saved() -> None:
    """Only where caches can be cut."""
    saved = SavedRow(8, 8, {})

    assert saved_row(saved, 8, cuts=False) is saved
    assert saved_row(saved, 3, cuts=True) is saved
    for length, cuts in ((3, False), (0, True), (9, True)):
        with pytest.raises(ValueError, match=f"cannot restore {length} tokens of 8"):
            saved_row(saved, length, cuts)


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
