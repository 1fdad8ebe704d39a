"""Partial sums: each core holds a share of a sum, which passes through additions and scaling until it is complete."""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

from ...model import ir as m
from ...model.ir import Node
from ...records import frozen


@frozen
class ShardedValue:
    """A value as `partial + whole + scaled / norm + own`; any may be missing.

    The partial ones are shares of sums over the cores along `axes` of the mesh. A `scaled` one was made from a value
    that is scattered and not normalised yet: `norm` is its norm, of which each core has a share too. Of `own`, which is
    left scattered, a core has some columns.
    """

    partial: Node | None
    whole: Node | None
    axes: tuple[str, ...] = ()
    scaled: Node | None = None
    norm: m.Call | None = None
    own: Node | None = None

    @property
    def complete(self) -> bool:
        """Whether no sum is outstanding."""
        return self.partial is None and self.scaled is None and self.own is None

    def through(self, change: Callable[[Node], Node]) -> ShardedValue:
        """What a linear op makes of it."""
        parts = (self.partial, self.whole, self.scaled, self.own)
        partial, whole, scaled, own = (None if part is None else change(part) for part in parts)
        return ShardedValue(partial, whole, self.axes, scaled, self.norm, own)


def whole(node: Node) -> ShardedValue:
    """A value that every core has."""
    return ShardedValue(None, node)


def linear(call: m.Call, args: list[ShardedValue]) -> ShardedValue | None:
    """The call with sums carried through; `None` where an operand must be complete first."""
    if call.op in ("neg", "f32"):
        return args[0].through(lambda part: evolve(call, args=(part,)))
    if call.op not in ("add", "sub", "mul", "div"):
        return None
    a, b = args
    if call.op in ("add", "sub"):
        if (not a.complete and not b.complete and a.axes != b.axes) or (a.norm and b.norm and a.norm is not b.norm):
            return None
        pairs = ((a.partial, b.partial), (a.whole, b.whole), (a.scaled, b.scaled), (a.own, b.own))
        partial, whole, scaled, own = (_joined(call, *pair) for pair in pairs)
        return ShardedValue(partial, whole, a.axes or b.axes, scaled, a.norm or b.norm, own)
    if a.own is not None or b.own is not None:
        return None  # what it is multiplied by has all columns
    left, right = a.whole, b.whole
    if b.complete and right is not None:
        return a.through(lambda part: evolve(call, args=(part, right)))
    if call.op == "mul" and a.complete and left is not None:
        return b.through(lambda part: evolve(call, args=(left, part)))
    return None


def _joined(call: m.Call, a: Node | None, b: Node | None) -> Node | None:
    if a is not None and b is not None:
        return evolve(call, args=(a, b))
    if b is None or call.op == "add":
        return b if a is None else a
    return m.Call("neg", (b,), (), call.types, call.span)
