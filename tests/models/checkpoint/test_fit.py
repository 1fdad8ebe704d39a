"""Which part of a stored tensor a declared shape takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mks.models.checkpoint.slicing import cut

lengths = st.lists(st.integers(1, 4), max_size=4)


@given(lengths, st.data())
def test_axes_of_length_one_come_and_go(want: list[int], data: st.DataObject) -> None:
    """Any insertion of axes of length 1 fits and keeps the numbers in order."""
    have = list(want)
    for _ in range(data.draw(st.integers(0, 3))):
        have.insert(data.draw(st.integers(0, len(have))), 1)
    array = np.arange(int(np.prod(have))).reshape(have)

    found = cut(tuple(have), tuple(want))

    assert found is not None
    assert found(array).shape == tuple(want)
    assert np.array_equal(found(array).ravel(), array.ravel())


@given(lengths, lengths)
def test_other_lengths_do_not_fit(have: list[int], want: list[int]) -> None:
    """Shapes fit exactly if they are equal without axes of length 1."""
    same = [n for n in have if n != 1] == [n for n in want if n != 1]

    assert (cut(tuple(have), tuple(want)) is not None) == same


@given(lengths.filter(bool), st.data())
def test_rows(want: list[int], data: st.DataObject) -> None:
    """Rows from a start on are the slice that numpy takes, whatever axes of length 1 surround them."""
    axis = max(len(want) - 2, 0)
    before, after = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    have = [n + (before + after if i == axis else 0) for i, n in enumerate(want)]
    array = np.arange(int(np.prod(have))).reshape(have)
    stored = array.reshape([n for n in have if n != 1])
    wanted = array.take(range(before, before + want[axis]), axis=axis)

    for shape in (tuple(have), stored.shape):
        found = cut(shape, tuple(want), before, axis)
        assert found is not None
        assert np.array_equal(found(array.reshape(shape)), wanted)
    assert cut(tuple(have), tuple(want), before + after + 1, axis) is None


@pytest.mark.parametrize(
    ("have", "want", "start"),
    [((8, 4), (4, 4), 5), ((8, 4), (4, 4), -1), ((8, 5), (4, 4), 0), ((8,), (4, 2), 0), ((4, 4, 4), (4, 4), 0)],
)
def test_rows_that_are_not_there(have: tuple[int, ...], want: tuple[int, ...], start: int) -> None:
    """Rows outside the tensor, and other lengths beside them, do not fit."""
    assert cut(have, want, start, 0) is None
