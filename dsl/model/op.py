"""A row of the op registry: an op's signature, shape rule and cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import field

from ..records import frozen
from . import along
from .along import Along
from .ir import Type
from .rules import Operands
from .shapes import Poly

type Rule = Callable[[Operands], tuple[Type, ...]]
type Count = Callable[[Operands], Poly]


def _nothing(o: Operands) -> Poly:
    return Poly()


@frozen
class Bundles:
    """How long a kernel computes an op, estimated: so many bundles, and so many for each register of its value."""

    once: float = 2.0
    register: float = 0.5


PLAIN = Bundles()


@frozen
class Op:
    """A row of the registry.

    `parameters` are values, in order; `scalars` are known before the model runs and follow the values, by position or
    name; those in `defaults` may be left out. `repeats` lets the last of them be given several times.
    `matrix` names the parameters rounded to the working type on entry; `updates` those that are states the op writes
    (once a pass); `caches` those read up to the current position.
    Of an `elementwise` op each number of the value is made of those in the same place of its operands, which align by
    the names of their axes: it works on shares and on the columns of scattered values as on whole ones.
    `along` gives the axes that the op reads along, which must be whole on each core: all, unless it says which.
    `flops` counts for one token, without what depends on the position; `bundles` are a kernel's.
    """

    name: str
    parameters: tuple[str, ...]
    rule: Rule
    scalars: tuple[str, ...] = ()
    defaults: Mapping[str, float | None] = field(factory=dict)
    repeats: bool = False
    matrix: frozenset[str] = frozenset()
    updates: frozenset[str] = frozenset()
    caches: frozenset[str] = frozenset()
    along: Along = along.everything
    flops: Count = _nothing
    summary: str = ""
    elementwise: bool = False
    bundles: Bundles = PLAIN

    @property
    def signature(self) -> str:
        """As people write it: `rms_norm(x, gain, eps)`."""
        parameters = list(self.parameters) + [
            f"{s} = {self.defaults[s]}" if self.defaults.get(s) is not None else s for s in self.scalars
        ]
        return f"{self.name}({', '.join(parameters)}{', …' if self.repeats else ''})"
