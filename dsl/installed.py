"""What other installed packages bring through entry points, checked for their type."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from .records import frozen


@cache
def points(group: str) -> frozenset[str]:
    """The names in an entry-point group; nothing is loaded."""
    from importlib.metadata import entry_points

    return frozenset(point.name for point in entry_points(group=group))


@frozen
class Installed[T]:
    """What packages bring by name, and what is wrong with those that fail."""

    good: Mapping[str, T]
    bad: Mapping[str, str]


def installed[T](group: str, kind: type[T]) -> Installed[T]:
    """All of an entry-point group that are of a type."""
    from importlib.metadata import entry_points

    good: dict[str, T] = {}
    bad: dict[str, str] = {}
    for point in entry_points(group=group):
        try:
            row = point.load()
        except Exception as e:  # a package that is not ours: whatever it raises is its fault, and is said
            bad[point.name] = f"`{point.value}` fails: {type(e).__name__}: {e}"
            continue
        if not isinstance(row, kind):
            bad[point.name] = f"`{point.value}` is no `{kind.__name__}`, but {type(row).__name__}"
        elif getattr(row, "name", point.name) != point.name:
            bad[point.name] = f"`{point.value}` has the name `{row.name}`"  # type: ignore[attr-defined]
        else:
            good[point.name] = row
    return Installed(good, bad)
