"""What a model's graph says that schedules rely on: products and their operands, named values, partial sums."""

from __future__ import annotations

from functools import cached_property

from attrs import field

from ..records import frozen
from . import ir as m
from .expressions import walk
from .ir import Node

STEP = "step"  # the scope of the unnamed step


@frozen
class Product:
    """A matrix product with a weight: where, with what operand, and which values its statement names."""

    scope: str
    weight: str
    operand: Node
    values: tuple[str, ...]
    in_experts: bool


@frozen(slots=False)
class Facts:
    """Derived once for a model. A scope is a part's name or a step's (`STEP` for the unnamed one)."""

    model: m.Model = field(repr=False)

    @cached_property
    def bodies(self) -> dict[str, tuple[m.Assign | m.Write, ...]]:
        """Each scope's assignments, those in loops over rows included."""
        bodies: dict[str, tuple[m.Assign | m.Write, ...]] = {}
        for name, step in self.model.steps.items():
            bodies[name or STEP] = tuple(_assignments(step.body))
        for name, part in self.model.parts.items():
            bodies[name] = tuple(_assignments(part.body))
        return bodies

    @cached_property
    def values(self) -> dict[str, tuple[Node, ...]]:
        """Every named value, `scope.name`, with the expressions that set it; written caches and buffers too."""
        values: dict[str, tuple[Node, ...]] = {}
        for scope, body in self.bodies.items():
            for statement in body:
                for name in names_of(statement):
                    key = f"{scope}.{name}"
                    values[key] = (*values.get(key, ()), statement.value)
        return values

    @cached_property
    def products(self) -> tuple[Product, ...]:
        """All products with weights, in the order of the text."""
        products = []
        for scope, body in self.bodies.items():
            for statement in body:
                values = tuple(f"{scope}.{name}" for name in names_of(statement))
                inside = {id(n) for e in walk(statement.value) if isinstance(e, m.Experts) for n in walk(e.body)}
                for node in walk(statement.value):
                    if isinstance(node, m.Call) and (weight := _weight_of(node)) is not None:
                        operand = node.args[1] if node.op == "matmul" else node
                        products.append(Product(scope, weight, operand, values, id(node) in inside))
        return tuple(products)

    @cached_property
    def tables(self) -> frozenset[str]:
        """Weights that are looked up row by row."""
        calls = (
            node
            for body in self.bodies.values()
            for statement in body
            for node in walk(statement.value)
            if isinstance(node, m.Call) and node.op == "index"
        )
        tables = (call.args[0] for call in calls if isinstance(call.args[0], m.WeightRef))
        return frozenset(table.name for table in tables if len(table.type.shape) == 2)

    def latent_attention(self, scope: str) -> tuple[m.Call, ...]:
        """The `attend_latent` ops of a part."""
        body = self.bodies.get(scope, ())
        return tuple(
            n for statement in body for n in walk(statement.value) if isinstance(n, m.Call) and n.op == "attend_latent"
        )

    def products_of(self, weight: str) -> tuple[Product, ...]:
        """Where a weight is multiplied."""
        return tuple(p for p in self.products if p.weight == weight)

    @cached_property
    def experts(self) -> dict[str, tuple[str, ...]]:
        """For each part with experts, the weights that its routes choose."""
        experts: dict[str, tuple[str, ...]] = {}
        for scope, body in self.bodies.items():
            names: dict[str, None] = {}
            for statement in body:
                for e in walk(statement.value):
                    if isinstance(e, m.Experts):
                        names.update(
                            dict.fromkeys(
                                n.args[0].name
                                for n in walk(e.body)
                                if isinstance(n, m.Call) and n.op == "index" and isinstance(n.args[0], m.WeightRef)
                            )
                        )
            if names:
                experts[scope] = tuple(names)
        return experts


def names_of(statement: m.Assign | m.Write) -> tuple[str, ...]:
    """The names that a statement sets."""
    return statement.names if isinstance(statement, m.Assign) else (statement.state.split(".")[-1],)


def _assignments(body: tuple[m.Statement, ...]) -> list[m.Assign | m.Write]:
    assignments: list[m.Assign | m.Write] = []
    for statement in body:
        if isinstance(statement, m.Assign | m.Write):
            assignments.append(statement)
        elif isinstance(statement, m.Loop):
            assignments.extend(_assignments(statement.body))
    return assignments


def _weight_of(call: m.Call) -> str | None:
    """The weight that a product reads; an attention op's own matrix counts as one."""
    if call.op == "attend_latent" and isinstance(call.args[3], m.WeightRef):
        return call.args[3].name
    if call.op != "matmul":
        return None
    weight = call.args[0]
    if isinstance(weight, m.Call) and weight.op == "index":
        weight = weight.args[0]
    return weight.name if isinstance(weight, m.WeightRef) else None


def same_operand(a: Node, b: Node) -> bool:
    """Whether two products read the same value."""
    if isinstance(a, m.Local | m.WeightRef | m.Input) and isinstance(b, m.Local | m.WeightRef | m.Input):
        return a.name == b.name
    if isinstance(a, m.Call) and isinstance(b, m.Call) and a.op == b.op and len(a.args) == len(b.args):
        return all(same_operand(x, y) for x, y in zip(a.args, b.args, strict=True))
    return a is b
