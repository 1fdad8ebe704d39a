"""attrs' frozen classes, made quicker: all share one way to compare, to hash and to show.

attrs writes and compiles these methods anew for each class. A command imports about 200 classes, and most of what
importing them took was that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import attrs


@cache
def _compared(cls: type) -> Callable[[Any], object]:
    """What a value's comparisons and its hash are made of."""
    names = [each.name for each in attrs.fields(cls) if each.eq]
    return attrgetter(*names) if names else lambda value: ()


def _eq(self: object, other: object) -> bool:
    if other.__class__ is not self.__class__:
        return NotImplemented
    compared = _compared(self.__class__)
    return compared(self) == compared(other)


def _hash(self: object) -> int:
    cls = self.__class__
    return hash((cls, _compared(cls)(self)))


def _repr(self: object) -> str:
    cls = self.__class__
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in attrs.fields(cls) if each.repr)
    return f"{cls.__qualname__.rsplit('>.', 1)[-1]}({', '.join(shown)})"


if TYPE_CHECKING:
    from attrs import frozen as frozen
else:

    def frozen(cls: type | None = None, **options: Any) -> Any:
        """The same as `attrs.frozen`."""
        if cls is None:
            return lambda made: frozen(made, **options)
        # attrs leaves alone what a class has of its own.
        cls.__eq__, cls.__hash__ = _eq, _hash
        if options.get("repr", True):
            cls.__repr__ = _repr
        return attrs.frozen(cls, **options)
