"""Parameters of which a few stand for all: the others are left to the thorough tests."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def thorough_but(first: Collection[Any], every: Iterable[Any]) -> list[Any]:
    """All of them; marked are those that are not among the first."""
    found = [each if each in first else _marked(each) for each in every]
    assert all(each in found for each in first), "one is not among them"
    return found


def _marked(each: Any) -> Any:
    values = each if isinstance(each, tuple) else (each,)
    return pytest.param(*values, marks=pytest.mark.thorough)
