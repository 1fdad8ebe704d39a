"""attrs' classes, made quicker: all share one way to compare, to hash and to show.

attrs writes and compiles these methods anew for each class. A command imports about 200 classes, and that took most of
the time of importing them. What is declared, and all that attrs knows of a class, is the same.
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


def _eq(self: Any, other: object) -> bool:
    if other.__class__ is not self.__class__:
        return NotImplemented
    cls: Any = self.__class__
    compared = _compared(cls)
    return compared(self) == compared(other)


def _hash(self: Any) -> int:
    cls: Any = self.__class__
    return hash((cls, _compared(cls)(self)))


def _repr(self: Any) -> str:
    cls = self.__class__
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in attrs.fields(cls) if each.repr)
    return f"{cls.__qualname__.rsplit('>.', 1)[-1]}({', '.join(shown)})"


if TYPE_CHECKING:
    from attrs import define as define
    from attrs import frozen as frozen
else:

    def frozen(cls: type | None = None, **options: Any) -> Any:
        """The same as `attrs.frozen`, which is left to make what `options` say about comparisons."""
        return _made(attrs.frozen, _hash, cls, options)

    def define(cls: type | None = None, **options: Any) -> Any:
        """The same as `attrs.define`, which makes what can change, and so has no hash."""
        return _made(attrs.define, None, cls, options)

    def _made(make: Callable[..., Any], hash_: object, cls: type | None, options: dict[str, Any]) -> Any:
        if cls is None:
            return lambda given: _made(make, hash_, given, options)
        if options.keys() & {"eq", "order", "cache_hash"}:
            return make(cls, **options)
        # attrs leaves alone what a class has of its own.
        own = {"__eq__": _eq, "__hash__": hash_, "__repr__": _repr}
        for name in own if options.get("repr", True) else ("__eq__", "__hash__"):
            if name not in vars(cls):
                setattr(cls, name, own[name])
        return make(cls, **options)
