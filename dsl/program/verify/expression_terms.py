"""Expressions as terms: what both the definition and a Program are read by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import field

from ...model import ir as m
from ...model import ops as registry
from ...records import define
from .. import ir as p
from ..ir.spec_access import Wrong
from .held import Held, complete, joined
from .terms import Term, Terms

type Options = tuple[tuple[str, Any], ...]


@define
class Flow:
    """Evaluates expressions to terms; who derives from it says what names stand for."""

    program: p.Program
    terms: Terms
    statics: dict[tuple[m.Static, str], float | tuple[float, ...]]
    rules: Mapping[str, Callable[[Flow, m.Call], Held]]
    place: str
    bound: dict[str, Held] = field(factory=dict, kw_only=True)

    def local(self, node: m.Local) -> Held:
        """A named value."""
        raise NotImplementedError

    def read(self, node: m.Read) -> Held:
        """A value where it lies."""
        raise Wrong(f"`{node.ref}` stands in a definition")

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
        """A number of the model, or, where they differ, those of the layers that run the place, or of its rows."""
        found = self.statics.get((static, self.place))
        if found is None:
            instance, phase = self.program.instance, self.program.phase_of(self.place)
            if "row" in static.depends:
                found = tuple(instance.number(static, row=row) for row in range(phase.rows))
            elif static.depends:
                found = self._own(instance.by_layer(static, phase.step.name))
            else:
                found = instance.number(static)
            if isinstance(found, tuple) and len(set(found)) == 1:
                found = found[0]
            self.statics[static, self.place] = found
        return found

    def _own(self, values: tuple[float, ...]) -> tuple[float, ...]:
        home = self.program.home(self.place)
        own, layers = self.program.layers_of(home), self.program.phase_of(home).layer_parts
        return tuple(v for layer, v in zip(layers, values, strict=True) if layer in own or not own)

    def layered(self, terms: tuple[Term, ...]) -> Term:
        """What differs by layer: a term for each layer that runs the place."""
        return terms[0] if len(set(terms)) == 1 else self.terms.atom("by layer", terms)

    def each(self, term: Term, count: int) -> tuple[Term, ...]:
        """A term in each of so many layers."""
        key: Any = self.terms.made[term]
        return key[1] if key[0] == "by layer" else (term,) * count

    def made(self, op: str, args: tuple[Term, ...], options: Options) -> Term:
        """An op of its operands; where options depend on the layer, another one in each."""
        count = next((len(value) for _, value in options if isinstance(value, tuple)), 0)
        if not count:
            return self.terms.atom(op, *args, options)
        own = ([(n, v[i] if isinstance(v, tuple) else v) for n, v in options] for i in range(count))
        return self.layered(tuple(self.terms.atom(op, *args, tuple(each)) for each in own))

    def options(self, node: m.Call, *without: str) -> Options:
        """An op's named scalars."""
        return tuple((name, self.number(static)) for name, static in node.options if name not in without)

    def evaluate(self, node: m.Node) -> Held:
        """What an expression is; raises `Wrong` where cores have less than an op needs."""
        match node:
            case m.Local():
                found = self.bound.get(node.name)
                return self.local(node) if found is None else found
            case m.Read():
                return self.read(node)
            case m.Call():
                return self.call(node)
            case m.WeightRef():
                return self.weight(node.name)
            case m.Static():
                number = self.number(node)
                if not isinstance(number, tuple):
                    return Held(self.terms.number(number))
                return Held(self.layered(tuple(map(self.terms.number, number))))
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
        if "row" in node.condition.depends:
            rows = [complete(self.evaluate(each), "a choice").term for each in (node.then, node.other)]
            return Held(self.terms.atom("by row", condition, *rows))
        then, other = (complete(self.evaluate(each), "a choice") for each in (node.then, node.other))
        both = (self.each(each.term, len(condition)) for each in (then, other))
        return Held(self.layered(tuple(a if c else b for c, a, b in zip(condition, *both, strict=True))))

    def call(self, node: m.Call) -> Held:
        """An op: by its own rule, or itself of its operands."""
        rule = self.rules.get(node.op)
        if rule is not None:
            return rule(self, node)
        row = registry.find(node.op)
        if row is None:
            raise Wrong(f"no meaning is known of `{node.op}`: it has no row in `op_terms.MEANING`")
        self.along(node)
        helds = [self.evaluate(arg) for arg in node.args]
        cut = None
        if row.elementwise:  # whichever columns a core has
            cut = joined(
                ((held, not arg.type.shape) for held, arg in zip(helds, node.args, strict=True)), f"`{node.op}`"
            )
            helds = [held._replace(cut=None) for held in helds]
        args = tuple(complete(held, f"`{node.op}`").term for held in helds)
        found = self.made(node.op, args, self.options(node))
        for parameter, arg in zip(row.parameters, node.args, strict=True):
            if parameter in row.updates and isinstance(arg, m.StateRef):
                self.update(arg.name, self.terms.atom("after", found, parameter))
        if node.op == "rope":
            self.turned(node)
        return Held(found, cut=cut)
