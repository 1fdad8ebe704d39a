"""A place that an op touches: where it lies, how much of it, as what type, and whether it is read or written."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ...model.ir import Ref


class Wrong(Exception):
    """What the definition does not say, or no op can do."""


# Of an axis of what is touched: all of it, so long; or from one place to another, inside of it.
type Extent = int | range


type Extents = tuple[Extent, ...]


class How(Enum):
    """Ops read, write, or read and write in place; transfers fill a place or leave from it, until a wait."""

    READ = "reads"
    WRITE = "writes"
    UPDATE = "updates"
    FILL = "fills"
    LEAVE = "leaves"


class Where(Enum):
    """Spaces of names: what lies in VMEM, rings apart, and what lies in HBM."""

    BUFFER = "buffer"
    RING = "ring"
    ARRAY = "array"
    OUTPUT = "output"


class Access(NamedTuple):
    """A place that an op touches. Without a shape it is all of a buffer, or what a view says of it."""

    how: How
    where: Where
    name: Ref
    shape: Extents | None = None
    dtype: str | None = None


def reads(name: Ref, shape: Extents | None = None, dtype: str | None = None) -> Access:
    return Access(How.READ, Where.BUFFER, name, shape, dtype)


def writes(name: Ref, shape: Extents | None = None, dtype: str | None = None) -> Access:
    return Access(How.WRITE, Where.BUFFER, name, shape, dtype)
