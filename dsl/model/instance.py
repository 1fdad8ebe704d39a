"""A model at given sizes: every axis, constant, list and condition as a number."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property

from attrs import field

from ..records import frozen
from . import ir as m
from .facts import Facts
from .shapes import Atom, Poly, Shape
from .static import StaticError, Value, evaluate, simplified


@frozen(slots=False)
class Instance:
    """`values` holds sizes, constants and lists; `working` is what `bf16` means, `bf16` or `f32`."""

    model: m.Model
    values: dict[str, Value] = field(eq=False)
    working: str = "bf16"

    @cached_property
    def facts(self) -> Facts:
        """What the model's graph says."""
        return Facts(self.model)

    @cached_property
    def _lengths(self) -> dict[Poly, int]:
        return {}

    def length(self, axis: Poly) -> int:
        """An axis as a number."""
        length = self._lengths.get(axis)
        if length is None:
            length = self._lengths[axis] = int(axis.evaluate(self.atom))
        return length

    @cached_property
    def _by_layer(self) -> dict[tuple[m.Static, str], tuple[float, ...]]:
        return {}

    def by_layer(self, static: m.Static, step: str = m.DECODE) -> tuple[float, ...]:
        """A scalar that depends on the layer, in each layer of a step; 0 where it has no value.

        A layer that reads it there has been refused.
        """
        known = self._by_layer.get((static, step))
        if known is None:
            known = tuple(self._if_any(static, layer) for layer in self.layer_parts(step))
            self._by_layer[static, step] = known
        return known

    def _if_any(self, static: m.Static, layer: int) -> float:
        try:
            return self.number(static, layer)
        except StaticError:
            return 0.0

    def shape(self, shape: Shape) -> tuple[int, ...]:
        """A shape in numbers."""
        return tuple(self.length(axis) for axis in shape)

    def atom(self, atom: Atom) -> int | Fraction:
        """What an axis is made of, as a number; `check_instance` has seen that it is one."""
        value = self.values[atom.name] if atom.expr is None else evaluate(atom.expr, self.values)
        assert isinstance(value, int | Fraction)
        return value

    def value(self, static: m.Static, layer: int | None = None, row: int | None = None) -> Value:
        """A scalar; `layer` and `row` are needed where it depends on them."""
        env = dict(self.values)
        if layer is not None:
            env["layer"] = layer
        if row is not None:
            env["row"] = row
        value = evaluate(static.expr, env)
        return simplified(value) if isinstance(value, Fraction) else value

    def number(self, static: m.Static, layer: int | None = None, row: int | None = None) -> float:
        """A scalar as a float."""
        value = self.value(static, layer, row)
        assert isinstance(value, int | float | Fraction)
        return float(value)

    def dtype(self, type_: m.Type) -> str:
        """A type's dtype with the working type filled in."""
        return self.working if type_.dtype == "bf16" else type_.dtype

    @cached_property
    def layer_loop(self) -> dict[str, m.Loop]:
        """For each step, its loop over layers."""
        loops = {}
        for name, step in self.model.steps.items():
            for statement in step.body:
                if isinstance(statement, m.Loop) and statement.variable == "layer":
                    loops[name] = statement
        return loops

    def layer_parts(self, step: str = m.DECODE) -> dict[int, tuple[str, ...]]:
        """For each layer of a step, the parts it runs, in order."""
        return self._layer_parts.get(step, {})

    def layers_of(self, part: str) -> tuple[int, ...]:
        """The layers that run a part in the decode step, ascending."""
        return self._layers_of.get(part, ())

    @cached_property
    def _layers_of(self) -> dict[str, tuple[int, ...]]:
        layers_of: dict[str, list[int]] = {}
        for layer, parts in self.layer_parts().items():
            for part in dict.fromkeys(parts):
                layers_of.setdefault(part, []).append(layer)
        return {part: tuple(layers) for part, layers in layers_of.items()}

    @cached_property
    def _layer_parts(self) -> dict[str, dict[int, tuple[str, ...]]]:
        parts = {}
        for step, loop in self.layer_loop.items():
            start, stop = self.value(loop.start), self.value(loop.stop)
            assert isinstance(start, int)
            assert isinstance(stop, int)
            parts[step] = {layer: self._chosen(loop, layer) for layer in range(start, stop)}
        return parts

    def _chosen(self, loop: m.Loop, layer: int) -> tuple[str, ...]:
        parts = []
        for run in loop.body:
            assert isinstance(run, m.Run)
            if run.condition is None or self.value(run.condition, layer):
                parts.append(run.part)
            elif run.other is not None:
                parts.append(run.other)
        return tuple(parts)

    @cached_property
    def part_layers(self) -> dict[str, tuple[int, ...]]:
        """For each part, the layers that run it in any step, ascending."""
        layers: dict[str, set[int]] = {name: set() for name in self.model.parts}
        for step in self.model.steps:
            for layer, parts in self.layer_parts(step).items():
                for part in parts:
                    layers[part].add(layer)
        return {name: tuple(sorted(indices)) for name, indices in layers.items()}

    def owner_layers(self, part: str | None) -> tuple[int, ...] | None:
        """The layers that hold a weight or state of a part; `None` for those of the model."""
        return None if part is None else self.part_layers.get(part, ())
