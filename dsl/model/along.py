"""Along which axes ops read: where a result's element depends on more of an axis than its own place.

A rule gives lengths. Where a schedule cuts a size that is in one of them, no core has all that the op reads. An op
without a rule of its own reads along everything: it works where its operands are whole.
"""

from __future__ import annotations

from collections.abc import Callable

from .rules import Operands
from .shapes import Poly

type Along = Callable[[Operands], tuple[Poly, ...]]


def everything(o: Operands) -> tuple[Poly, ...]:
    """Every axis of every operand."""
    return tuple(axis for type_ in o.types.values() for axis in type_.shape)


def nothing(o: Operands) -> tuple[Poly, ...]:
    """Each element alone."""
    return ()


def last(*parameters: str) -> Along:
    """The last axes of some operands."""
    return lambda o: tuple(o.shape(p)[-1] for p in parameters if o.shape(p))


def but_first(*parameters: str) -> Along:
    """All axes of some operands but the first, which is that of heads."""
    return lambda o: tuple(axis for p in parameters for axis in o.shape(p)[1:])


def heads(o: Operands) -> tuple[Poly, ...]:
    """A head's channels, which lie together: a share of the last axis is one of heads."""
    (n,), axis = o.scalars["n"], o.shape("x")[-1]
    return (axis.divided_by(n) or axis,)


def latent(o: Operands) -> tuple[Poly, ...]:
    """All but the heads, and the rows of `kv_b` that are a head's."""
    (heads, width), (rows, rank) = o.shape("q"), o.shape("kv_b")
    return (width, rows.divided_by(heads) or rows, rank, *o.shape("latent"), *o.shape("common"))
