"""Sums that are left scattered: each core has some of their columns, and of the weights that only such columns meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from functools import cached_property

from attrs import field

from ..model import ir as m
from ..model.expressions import walk
from ..model.facts import Facts, Product
from ..model.ops import is_elementwise
from ..records import frozen


@frozen(slots=False)
class Columns:
    """What is made column by column of the values that a schedule leaves `scattered`, `part.value` each.

    Matrices in `apart`, whose shares are said otherwise, are never cut for that.
    """

    facts: Facts = field(repr=False)
    scattered: frozenset[str]
    apart: frozenset[str]

    def of(self, node: m.Node, scope: str) -> bool:
        """Whether cores can make their columns of a value from their columns of others alone."""
        return bool(self.scattered) and self._of(node, scope, self.weights)

    def normed(self, node: m.Node, scope: str) -> bool:
        """Whether a value is the RMS norm of one that is scattered, with a gain of which cores have their columns."""
        return bool(self.scattered) and self._normed(node, scope, self.weights)

    def _of(self, node: m.Node, scope: str, weights: Container[str]) -> bool:
        if isinstance(node, m.Local):
            return f"{scope}.{node.name}" in self.scattered
        if not isinstance(node, m.Call) or not is_elementwise(node.op):
            return False
        parts = [self._of(arg, scope, weights) for arg in node.args]
        rest = [arg for arg, own in zip(node.args, parts, strict=True) if not own]
        return any(parts) and all(_beside(arg, weights) for arg in rest)

    def _normed(self, node: m.Node, scope: str, weights: Container[str]) -> bool:
        if not isinstance(node, m.Call) or node.op != "rms_norm":
            return False
        x, gain = node.args
        return isinstance(x, m.Local) and self._of(x, scope, weights) and _beside(gain, weights)

    @cached_property
    def weights(self) -> frozenset[str]:
        """Matrices that only multiply columns, and gains and the like that only columns meet."""
        if not self.scattered:
            return frozenset()
        every = self.facts.products
        reads = Counter(_weights(s.value for body in self.facts.bodies.values() for s in body))
        known: frozenset[str] = frozenset(self.facts.model.weights)
        while True:
            cut = [p for p in every if self._multiplies(p, known)]
            whole = {p.weight for p in every} - {p.weight for p in cut}
            whole |= {p.weight for p in every if all(p is not other for other in cut)}
            inside = Counter(_weights(p.operand for p in cut if p.weight not in whole))
            gains = {name for name, count in inside.items() if count == reads[name]}
            scattered = frozenset({p.weight for p in cut} - whole | gains)
            if scattered == known:
                return scattered
            known = scattered

    def _multiplies(self, product: Product, weights: frozenset[str]) -> bool:
        if product.in_experts or product.weight not in weights or product.weight in self.apart:
            return False
        operand, scope = product.operand, product.scope
        return self._of(operand, scope, weights) or self._normed(operand, scope, weights)


def _beside(node: m.Node, weights: Container[str]) -> bool:
    """Whether a value that is not made of columns can meet them: a number, or a vector that is cut like them."""
    if isinstance(node, m.Call) and is_elementwise(node.op):
        return all(_beside(arg, weights) for arg in node.args)
    return isinstance(node, m.Static) or (isinstance(node, m.WeightRef) and node.name in weights)


def _weights(nodes: Iterable[m.Node]) -> list[str]:
    return [n.name for node in nodes for n in walk(node) if isinstance(n, m.WeightRef)]
