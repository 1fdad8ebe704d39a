"""What other installed packages bring through entry points: loaded and checked, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, Any

from .records import frozen

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class PackageError(Exception):
    """What a package brings cannot be used; the text says why."""


@cache
def points(group: str) -> frozenset[str]:
    """The names in an entry-point group; nothing is loaded."""
    from importlib.metadata import entry_points

    return frozenset(point.name for point in entry_points(group=group))


def entries(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """By name, the entry points of a group that mean different things: one, or no package can be taken for it."""
    from importlib.metadata import entry_points

    found: dict[str, dict[str, EntryPoint]] = {}
    for point in entry_points(group=group):
        found.setdefault(point.name, {}).setdefault(point.value, point)
    return {name: tuple(by_value.values()) for name, by_value in found.items()}


def load(given: Sequence[EntryPoint]) -> Any:
    """What a name of `entries` means. Raises `PackageError`."""
    if len(given) > 1:
        *others, last = (f"`{point.value}`" for point in given)
        count = "two" if len(given) == 2 else str(len(given))
        raise PackageError(f"{count} packages bring it: {', '.join(others)} and {last}")
    (point,) = given
    if not _means_an_object(point):
        raise PackageError(f"`{point.value}` is no `module:object`")
    try:
        return point.load()
    except (Exception, SystemExit) as e:  # a package that is not ours: whatever it raises is its fault, and is said
        raise PackageError(f"`{point.value}` fails: {told(e)}") from e


def _means_an_object(point: EntryPoint) -> bool:
    try:
        return bool(point.module)
    except AttributeError:  # how importlib takes what it cannot read
        return False


def told(error: BaseException) -> str:
    """An exception in a line."""
    return f"{type(error).__name__}: {error}"


@frozen
class Installed[T]:
    """What packages bring by name, and what is wrong with those that fail."""

    good: Mapping[str, T]
    bad: Mapping[str, str]


def installed[T](
    group: str, kind: type[T], faults: Callable[[T], Iterator[str]] = lambda row: iter(())
) -> Installed[T]:
    """All of an entry-point group that are of a type; `faults` says what is wrong with a row, the gravest first."""
    good: dict[str, T] = {}
    bad: dict[str, str] = {}
    for name, given in entries(group).items():
        try:
            row = load(given)
            _check(row, name, given[0].value, kind, faults)
        except PackageError as e:
            bad[name] = str(e)
        else:
            good[name] = row
    return Installed(good, bad)


def _check[T](row: T, name: str, value: str, kind: type[T], faults: Callable[[T], Iterator[str]]) -> None:
    if not isinstance(row, kind):
        raise PackageError(f"`{value}` is no `{kind.__name__}`, but {type(row).__name__}")
    if getattr(row, "name", name) != name:
        raise PackageError(f"`{value}` has the name `{row.name}`")  # type: ignore[attr-defined]
    try:
        fault = next(faults(row), None)
    except Exception as e:
        raise PackageError(f"`{value}` fails: {told(e)}") from e
    if fault is not None:
        raise PackageError(f"`{value}` fails: {fault}")


def number_faults(what: str, value: object, *, positive: bool = False, signed: bool = False) -> Iterator[str]:
    """What a finite number of 0 or more is not; `positive`: one above 0; `signed`: any."""
    wanted = "" if signed else " above 0" if positive else " of 0 or more"
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
        yield f"{what} is {value!r}; it must be a finite number{wanted}"
    elif not signed and (value < 0 or (positive and value == 0)):
        yield f"{what} is {value!r}; it must be{wanted}"


def count_faults(what: str, value: object) -> Iterator[str]:
    """What an integer of 1 or more is not."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        yield f"{what} is {value!r}; it must be an integer of 1 or more"


def kind_faults(what: str, value: object, kind: type) -> Iterator[str]:
    """What a value of a type is not."""
    if not isinstance(value, kind):
        yield f"{what} is {value!r}; it must be of type `{kind.__name__}`"
