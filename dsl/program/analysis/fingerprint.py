"""What a Program is, as a number: Programs of which kernels are the same have the same."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from attrs import fields

from ...schedule.ir import Schedule
from ...source import Span
from .. import ir as p


def digest(program: p.Program) -> str:
    """A hash of all that a Program says, but for where its text stands and what other rows the schedule lists."""
    return _Walk().of(program).hex()


class _Walk:
    """Hashes of values, made from those of what they hold; an object that is held in several places is read once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, bytes]] = {}

    def of(self, value: Any) -> bytes:
        """The hash of a value. The values seen are kept, so that no other gets the identity of one."""
        if id(value) not in self._known:
            self._known[id(value)] = value, self._made(value)
        return self._known[id(value)][1]

    def _made(self, value: Any) -> bytes:
        found = sha256(type(value).__name__.encode())
        for part in self._parts(value):
            found.update(part)
        return found.digest()

    def _parts(self, value: Any) -> Iterator[bytes]:
        if isinstance(value, Span):
            return
        if isinstance(value, frozenset):
            yield from sorted(map(self.of, value))
        elif isinstance(value, tuple | list):
            yield from map(self.of, value)
        elif isinstance(value, dict):
            yield from (self.of(each) for item in value.items() for each in item)
        elif hasattr(type(value), "__attrs_attrs__"):
            names = [each.name for each in fields(type(value))]
            listed = ("rows", "spans") if isinstance(value, Schedule) else ()
            yield from (self.of(getattr(value, name)) for name in names if name not in listed)
        else:
            yield repr(value).encode()
