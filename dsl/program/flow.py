"""Expressions as terms: what both the definition and a Program are read by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, field

from ..model import ir as m
from ..model import ops as registry
from . import ir as p
from .held import Held, Wrong, complete, joined
from .terms import Term, Terms

type Options = tuple[tuple[str, Any], ...]

# Ops that read along an axis of an operand: which operand, which axis.
ALONG = {"rms_norm": (0, -1), "l2_norm": (0, -1), "softmax": (0, -1), "argmax": (0, -1), "rope": (0, -1),
         "mix": (1, -1), "route": (0, -1), "delta_rule": (0, -1), "attend": (0, -1),
         "attend_latent": (0, -1)}  # fmt: skip
# Ops of one number after the other, for which it makes no difference which columns a core has.
EACH = frozenset({"pow", "max", "min", "exp", "tanh", "sigmoid", "silu", "softplus", "sqrt", "bf16"})


@define
class Flow:
    """Evaluates expressions to terms; who derives from it says what names stand for."""

    program: p.Program
    terms: Terms
    statics: dict[int, float | tuple[float, ...]]
    rules: Mapping[str, Callable[[Flow, m.Call], Held]]
    bound: dict[str, Held] = field(factory=dict, kw_only=True)

    def local(self, node: m.Local) -> Held:
        """A named value."""
        raise NotImplementedError

    def weight(self, name: str) -> Held:
        """A weight that is no product's."""
        raise NotImplementedError

    def state(self, name: str) -> Held:
        """A state, cache or buffer as it is."""
        raise NotImplementedError

    def update(self, name: str, term: Term) -> None:
        """A state becomes another."""
        raise NotImplementedError

    def experts(self, node: m.Experts) -> Held:
        """The sum over the chosen experts."""
        raise Wrong("a sum over experts stands in an expression")

    def turned(self, node: m.Call) -> None:
        """A rotary embedding turns by what is known of the positions."""

    def along(self, node: m.Call) -> None:
        """An op reads along an axis, of which it must have all."""

    def number(self, static: m.Static) -> float | tuple[float, ...]:
        """A number of the model, or those of all layers."""
        found = self.statics.get(id(static))
        if found is None:
            instance = self.program.instance
            found = instance.by_layer(static) if static.depends else instance.number(static)
            if isinstance(found, tuple) and len(set(found)) == 1:
                found = found[0]
            self.statics[id(static)] = found
        return found

    def options(self, node: m.Call, *without: str) -> Options:
        """An op's named scalars."""
        return tuple((name, self.number(static)) for name, static in node.options if name not in without)

    def evaluate(self, node: m.Node) -> Held:
        """What an expression is; raises `Wrong` where cores have less than an op needs."""
        match node:
            case m.Local():
                found = self.bound.get(node.name)
                return self.local(node) if found is None else found
            case m.Call():
                return self.call(node)
            case m.WeightRef():
                return self.weight(node.name)
            case m.Static():
                number = self.number(node)
                atom = self.terms.atom("by layer", number) if isinstance(number, tuple) else self.terms.number(number)
                return Held(atom)
            case m.Input():
                return Held(self.terms.atom("input", node.name))
            case m.StateRef():
                return self.state(node.name)
            case m.Slice():
                base = complete(self.state(node.base.name), f"`{node.base.name}`")
                return Held(self.terms.atom("slice", base.term, (self.number(node.start), self.number(node.stop))))
            case m.Select():
                return self._select(node)
            case m.Let():
                outer = self.bound
                for name, value in node.bindings:
                    self.bound = self.bound | {name: self.evaluate(value)}
                found = self.evaluate(node.body)
                self.bound = outer
                return found
            case m.Experts():
                return self.experts(node)

    def _select(self, node: m.Select) -> Held:
        condition = self.number(node.condition)
        if not isinstance(condition, tuple):
            return self.evaluate(node.then if condition else node.other)
        then, other = (complete(self.evaluate(each), "a choice") for each in (node.then, node.other))
        return Held(self.terms.atom("select", condition, then.term, other.term))

    def call(self, node: m.Call) -> Held:
        """An op: by its own rule, or itself of its operands."""
        rule = self.rules.get(node.op)
        if rule is not None:
            return rule(self, node)
        row = registry.find(node.op)
        if row is None:
            raise Wrong(f"no meaning is known of `{node.op}`: it has no row in `meaning.MEANING`")
        if node.op in ALONG:
            self.along(node)
        helds = [self.evaluate(arg) for arg in node.args]
        cut = None
        if node.op in EACH:
            cut = joined(
                ((held, not arg.type.shape) for held, arg in zip(helds, node.args, strict=True)), f"`{node.op}`"
            )
            helds = [held._replace(cut=None) for held in helds]
        found = self.terms.atom(node.op, *(complete(held, f"`{node.op}`").term for held in helds), self.options(node))
        for parameter, arg in zip(row.parameters, node.args, strict=True):
            if parameter in row.updates and isinstance(arg, m.StateRef):
                self.update(arg.name, self.terms.atom("after", found, parameter))
        if node.op == "rope":
            self.turned(node)
        return Held(found, cut=cut)
