"""What `open_model` and `mks.open` are given, looked at in one place: each argument by itself."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from numbers import Real
from typing import Any

from .cannot_open import CannotOpen

BACKENDS = ("reference", "pallas")
DTYPES = ("f32", "bf16", "auto")

# Rows and positions are int32.
_MOST = 2**31 - 1


def check_choices(backend: Any, dtype: Any, sizes: Any) -> None:
    """Raises `CannotOpen` where there is no such backend or working type, or sizes are not numbers by name."""
    for name, value, known in (("backend", backend, BACKENDS), ("dtype", dtype, (None, *DTYPES))):
        if not any(value is each or (isinstance(value, str) and value == each) for each in known):
            *most, last = (f"`{each}`" for each in known if each is not None)
            raise CannotOpen(f"`{name}` must be {', '.join(most)} or {last}, not {value!r}")
    if sizes is not None and not (isinstance(sizes, Mapping) and all(map(_is_size, sizes.items()))):
        raise CannotOpen(f"`sizes` must be numbers by name, such as layers and 2, not {str(sizes)[:80]}")


def _is_size(item: tuple[Any, Any]) -> bool:
    name, value = item
    if not isinstance(name, str) or isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def check_room(rows: Any, context: Any, tokens_per_row: Any) -> tuple[int | None, int | None, int]:
    """The numbers as Python's; rows and context may be None.

    Raises `CannotOpen` where one is no integer from 1 on.
    """
    return (
        None if rows is None else _count("rows", rows),
        None if context is None else _count("context", context),
        _count("tokens_per_row", tokens_per_row),
    )


def _count(name: str, value: Any) -> int:
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if not 1 <= number <= _MOST:
        raise CannotOpen(f"`{name}` must be an integer from 1 to {_MOST}, not {value!r}")
    return number
