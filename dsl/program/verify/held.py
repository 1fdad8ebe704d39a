"""What a core has of a value: all of it, a share of a sum, or some of its columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..ir.spec_access import Wrong
from .terms import Term


class Cut(NamedTuple):
    """The columns of a value of `length` columns are shared out over axes of the mesh."""

    axes: frozenset[str]
    length: int


class Held(NamedTuple):
    """A term, of which each core along the axes `over` has a share of the sum, or its own columns."""

    term: Term
    over: frozenset[str] = frozenset()
    cut: Cut | None = None

    @property
    def whole(self) -> bool:
        """Whether every core has the value itself."""
        return not self.over and self.cut is None


class Region(NamedTuple):
    """What lies in `width` columns of a buffer from `start` on."""

    start: int
    width: int
    held: Held


type Content = tuple[Region, ...]


def words(axes: Iterable[str]) -> str:
    """Axes, for people."""
    return ", ".join(f"`{axis}`" for axis in sorted(axes))


def complete(held: Held, what: str) -> Held:
    """The value itself; raises `Wrong` where a core has less."""
    if held.over:
        raise Wrong(f"{what} reads a share of a sum over {words(held.over)} that is not completed")
    if held.cut is not None:
        raise Wrong(f"{what} reads some columns of a value that lies over {words(held.cut.axes)}")
    return held


def joined(helds: Iterable[tuple[Held, bool]], what: str) -> Cut | None:
    """How the columns of an elementwise op's operands lie; `True` where one has no columns at all."""
    cuts = {held.cut for held, scalar in helds if not scalar}
    if len(cuts) > 1:
        raise Wrong(f"{what} joins all columns of one value with some of another")
    return next(iter(cuts), None)
