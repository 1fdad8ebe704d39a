"""Numbers that callers give a decoder: nothing else becomes an index, which arrays would round or wrap around."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np


def integer(value: Any, what: str) -> int:
    """A whole number, Python's or numpy's; raises `ValueError`, in which `what` names it, for all else and bools."""
    try:
        (found,) = _integers((value,))
    except TypeError:
        raise ValueError(f"{what} must be an integer, not {value!r}") from None
    return found


def integers(values: Any, what: str) -> list[int]:
    """Whole numbers in a sequence or an array of one axis; raises `ValueError`, in which `what` names them."""
    try:
        return _integers(values)
    except TypeError:
        raise ValueError(f"{what} must be a list of integers, not {str(values)[:80]}") from None


def rows_of(values: Any, rows: int, what: str) -> list[int]:
    """Rows, which are below `rows`; raises `ValueError`, in which `what` names them."""
    found = integers(values, what)
    for row in found:
        if not 0 <= row < rows:
            raise ValueError(f"{what}: there is no row {row}, they are 0 to {rows - 1}")
    return found


def token_ids(values: Any, vocab: int, what: str) -> list[int]:
    """Ids below `vocab`; raises `ValueError`, in which `what` names them."""
    found = integers(values, what)
    if found and (min(found) < 0 or max(found) >= vocab):
        wrong = next(token for token in found if not 0 <= token < vocab)
        raise ValueError(f"{what}: there is no token {wrong}, ids are 0 to {vocab - 1}")
    return found


def _integers(values: Any) -> list[int]:
    # Iterating over an array makes an array of each element, on a device perhaps.
    found = np.asarray(values).tolist() if hasattr(values, "dtype") else values
    if isinstance(found, str | bytes) or not hasattr(found, "__len__"):
        raise TypeError
    found = list(found)
    if not {bool, np.bool_}.isdisjoint(map(type, found)):
        raise TypeError
    return list(map(operator.index, found))
