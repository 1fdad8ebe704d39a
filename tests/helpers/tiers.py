"""Parameters of which a few stand for all: the others are left to the thorough tests."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def thorough_but(first: Collection[Any], every: Iterable[Any], *, single: bool = False) -> list[Any]:
    """All of them; marked are those that are not among the first. A tuple is several parameters, or a `single` one."""
    found = []
    for each in every:
        values = each if isinstance(each, tuple) and not single else (each,)
        found.append(each if each in first else pytest.param(*values, marks=pytest.mark.thorough))
    assert all(each in found for each in first), "one is not among them"
    return found
