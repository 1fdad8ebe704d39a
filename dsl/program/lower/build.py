"""What a Program is made of while it is being lowered: names, buffers, products and their rings."""

from __future__ import annotations

from attrs import evolve, field

from ...diagnostics import Diagnostic, Label, MksError
from ...model import ir as m
from ...model.expressions import walk
from ...model.facts import STEP, Facts, same_operand
from ...model.shapes import Poly
from ...records import define
from ...schedule.ir import Group, Schedule
from ...schedule.shares import Shares
from ...source import Span
from ...targets.lanes import LANES
from ...targets.targets import BYTES
from .. import ir as p
from ..ir.resources import ref_of
from ..layout.tiling import by_head, tiling

DIRECT = p.UnstreamedRef()


def cannot(what: str, span: Span | None, *helps: str) -> MksError:
    """The error for what kernels do not do."""
    at = None if span is None else Label(span)
    return MksError([Diagnostic("E901", f"kernels cannot do this yet: {what}", at, helps=helps)])


@define
class Build:
    """Grows while statements are lowered; `facts` and `shares` are those of the schedule, the rest as in `lower`.

    `step` is the one at hand; all that grows is common to all of them. `homes` gives of the inside of a loop over rows
    the part or step that it is in.
    """

    schedule: Schedule
    shares: Shares
    facts: Facts
    step: m.Step
    rows: int
    plain: frozenset[str] = frozenset()
    consecutive: bool = False
    homes: dict[str, str] = field(factory=dict)
    buffers: dict[p.BufferRef, p.Buffer] = field(factory=dict)
    views: dict[m.Ref, p.View] = field(factory=dict)
    rings: dict[p.RingRef, p.Ring] = field(factory=dict)
    products: dict[p.ProductRef, p.Product] = field(factory=dict)
    copies: dict[p.ArrayRef, p.Copy] = field(factory=dict)
    caches: dict[p.CacheRingRef, p.CacheRing] = field(factory=dict)
    exchanges: dict[p.CollectiveRef, p.Collective] = field(factory=dict)
    arrays: dict[p.ArrayRef, p.Array] = field(factory=dict)
    outputs: dict[p.ArrayRef, p.Array] = field(factory=dict)
    banks: dict[p.ExpertPoolRef, p.ExpertPool] = field(factory=dict)
    turns: dict[str, p.RopeTables] = field(factory=dict)
    scalars: dict[m.Static, tuple[float, ...]] = field(factory=dict)

    def of(self, step: m.Step, rows: int, consecutive: bool) -> Build:
        """The same Program while another step is lowered."""
        return evolve(self, step=step, rows=rows, consecutive=consecutive)

    def inside(self, loop: str, home: str) -> Build:
        """The same while the inside of a loop over rows is."""
        self.homes[loop] = home
        return evolve(self, rows=1)

    @property
    def place(self) -> str:
        """That of the step's own statements."""
        return self.step.name or STEP

    def home(self, place: str) -> str:
        """The part or step that a place is in."""
        return self.homes.get(place, place)

    def is_step(self, place: str) -> bool:
        """Whether a place is a step, or a loop over rows in one."""
        return self.home(place) not in self.schedule.model.parts

    def full(self, name: str, place: str) -> p.ValueRef:
        """By what name all know a value that a place names: in a loop over rows, one of the whole step's or its own."""
        if name in self.carried or place == self.place:
            return p.ValueRef(self.step.name, name)
        return p.ValueRef(place, name)

    def product_of(self, weight: str, place: str) -> p.MatmulRef:
        """The product with a weight that a place reads, which is made."""
        found = (p.MatmulRef(weight, owner) for owner in (place, self.home(place), self.step.name, ""))
        return next(ref for ref in found if ref in self.views)

    def value_of(self, name: str, place: str) -> p.ValueRef | None:
        """The value that a place reads by a name."""
        found = (p.ValueRef(owner, name) for owner in (place, self.home(place), self.step.name, ""))
        return next((ref for ref in found if ref in self.views), None)

    def product_view(self, weight: str, place: str) -> p.MatmulRef:
        """By what name all know a weight's product: the owner's by the weight's, any other's by the place's too."""
        declared = self.schedule.model.weights[weight]
        mine = declared.part == self.home(place) or (
            declared.part is None and self.is_step(place) and not self.step.name
        )
        return p.MatmulRef(weight, "" if mine else place)

    def dtype(self, type_: m.Type) -> str:
        """A type's, with the working type filled in."""
        return self.shares.instance.dtype(type_)

    def buffer[R: p.BufferRef](
        self, name: R, shape: tuple[int, ...], dtype: str, place: str, span: Span | None = None
    ) -> R:
        """Room for something new."""
        assert name not in self.buffers
        self.buffers[name] = p.Buffer(name, shape, dtype, place, span)
        return name

    def held[R: p.BufferRef](self, name: R, shape: tuple[int, ...], dtype: str, place: str, span: Span) -> R:
        """Room for something new of every row, and the value of that name in it."""
        self.views[name] = p.View(name, 0, shape)
        return self.buffer(name, (self.rows, *shape), dtype, place, span)

    def value(self, name: p.ValueRef, type_: m.Type, place: str, span: Span, dtype: str | None = None) -> p.ValueRef:
        """Room for a value of every row, known by its name; the same room if the name is assigned again."""
        if name not in self.buffers:
            self.held(name, self.shares.shape(type_.shape), dtype or self.dtype(type_), place, span)
        return name

    @property
    def carried(self) -> frozenset[str]:
        """The names that the step sets before its loop over the layers; none where there is no loop."""
        return p.carried(self.step)

    @property
    def layer_parts(self) -> dict[int, tuple[str, ...]]:
        """For each layer of the step, its parts in order."""
        return self.shares.instance.layer_parts(self.step.name)

    def ref_of(self, node: m.Node, place: str) -> m.Ref | None:
        """What a name in an expression of a place, or a read there, stands for; as `Program.ref_of`."""
        return ref_of(node, (place, self.home(place), self.step.name), self.views)

    def layers_of(self, part: str) -> tuple[int, ...]:
        """The layers that run a part in the step."""
        return tuple(layer for layer, parts in self.layer_parts.items() if part in parts)


def groups(build: Build, place: str, statements: tuple[m.Assign | m.Write, ...]) -> dict[str, tuple[str, ...]]:
    """For each weight that a place multiplies, those of its product: a stream's group, or all that share an operand.

    The members' order, and so every sum, is that of use, but those come first that fill whole lanes, and last those
    whose rows are shared out and travel together.
    """
    said: dict[str, Group] = {}
    for stream in build.schedule.streams:
        for name, lines in stream.lines:
            if name == build.home(place):
                said |= {weight: group for group in lines for weight in group.weights}
    found: list[tuple[object, m.Node, list[str]]] = []
    for weight, operand, key in _multiplied(build, statements):
        for other_key, other, members in found:
            together = said[weight] is said.get(members[0]) if weight in said else members[0] not in said
            if together and other_key == key and same_operand(other, operand):
                members.append(weight)
                break
        else:
            found.append((key, operand, [weight]))
    made: dict[str, tuple[str, ...]] = {}
    for _, _, members in found:
        order = sorted(
            members, key=lambda w: (_rows(build, w) % LANES > 0, w in build.schedule.splits, members.index(w))
        )
        made |= dict.fromkeys(members, tuple(order))
    return made


def _multiplied(build: Build, statements: tuple[m.Assign | m.Write, ...]) -> list[tuple[str, m.Node, object]]:
    """Weights in the order of use, their operands, and what two must agree in to be one product."""
    version: dict[str, int] = {}
    found: list[tuple[str, m.Node, object]] = []
    for statement in statements:
        for node in walk(statement.value):
            if isinstance(node, m.Call) and node.op == "matmul" and isinstance(node.args[0], m.WeightRef):
                weight, operand = node.args[0].name, node.args[1]
                used = tuple(sorted((n.name, version.get(n.name, 0)) for n in walk(operand) if isinstance(n, m.Local)))
                found.append((weight, operand, (used, build.dtype(node.args[0].type), summed_over(build, weight))))
        for name in statement.names if isinstance(statement, m.Assign) else ():
            version[name] = version.get(name, 0) + 1
    return found


def _rows(build: Build, weight: str) -> int:
    return build.shares.weight_shape(build.schedule.model.weights[weight])[0]


def summed_over(build: Build, weight: str) -> tuple[str, ...]:
    """The axes of the mesh along which a product with a weight gives each core a share of a sum."""
    return sharded_over(build, build.schedule.model.weights[weight].shape[-1])


def sharded_over(build: Build, axis: Poly) -> tuple[str, ...]:
    """The axes of the mesh that a length is shared out over, in the mesh's order."""
    return build.shares.over(axis)


def split_over(build: Build, weight: str) -> tuple[str, ...]:
    """The axes of the mesh that a split product's rows are shared out over, in the mesh's order."""
    said = build.schedule.splits.get(weight)
    return tuple(name for name, size in build.schedule.mesh if said is not None and name in said.axes and size > 1)


def product(build: Build, place: str, members: tuple[str, ...], operand: p.BufferRef | None, span: Span) -> p.Product:
    """A product's buffers and its ring; `operand` is a buffer that holds it as it is needed, if there is one."""
    weights = [build.schedule.model.weights[name] for name in members]
    dtype = build.dtype(weights[0].type)
    widths = tuple(_rows(build, name) for name in members)
    inputs = build.shares.weight_shape(weights[0])[-1]
    tiles = tiling(sum(widths), inputs, 8 * BYTES[dtype])
    name = p.ProductRef(place, members)
    if operand is None or build.buffers[operand].shape != (build.rows, tiles.inputs):
        operand = build.buffer(p.PartRef(p.Role.OPERAND, name), (build.rows, tiles.inputs), dtype, place, span)
    result = build.buffer(p.PartRef(p.Role.RESULT, name), (build.rows, tiles.outputs), "f32", place, span)
    made = p.Product(name, place, members, widths, dtype, tiles, ring_of(build, place, members), operand, result, span)
    build.products[name] = made
    at = 0
    for weight, width in zip(members, widths, strict=True):
        build.views[build.product_view(weight, place)] = p.View(result, at, (width,))
        at += width
    return made


def layer_scalar(build: Build, static: m.Static, *, table: bool = True) -> None:
    """A number that depends on the layer is known from a table, if it differs."""
    if static.depends > {"layer"}:
        raise cannot("a number that depends on the layer and on the row", static.span)
    if "layer" in static.depends and table:
        values = build.shares.instance.by_layer(static, build.step.name)
        if build.scalars.setdefault(static, values) != values:
            raise cannot(
                "a number that depends on the layer in one way in one step, and in another in another", static.span
            )


def head_product(
    build: Build, place: str, weight: str, piece: str, heads: int, outputs: int, inputs: int, span: Span
) -> p.Product:
    """Products of each head with its own part of a weight: operand and result are `[heads, rows, …]`."""
    declared = build.schedule.model.weights[weight]
    dtype = build.dtype(declared.type)
    tiles = by_head(tiling(outputs, inputs, 8 * BYTES[dtype]), heads)
    if tiles is None:
        raise cannot(f"multiply each head by a matrix {[outputs, inputs]}", span)
    name = p.ProductRef(place, (weight,), piece)
    # Twice the rows: what is f32 goes through the unit in two halves.
    operand: p.BufferRef = build.buffer(
        p.PartRef(p.Role.OPERAND, name), (heads, build.rows, tiles.inputs), "f32", place, span
    )
    result = build.buffer(p.PartRef(p.Role.RESULT, name), (heads, build.rows, tiles.outputs), "f32", place, span)
    build.views[result] = p.View(result, 0, (heads, outputs))
    ring = ring_of(build, place, (weight,))
    made = p.Product(name, place, (weight,), (outputs,), dtype, tiles, ring, operand, result, span, piece)
    build.products[name] = made
    return made


def ring_of(build: Build, place: str, members: tuple[str, ...]) -> p.RingRef:
    """The ring that a product's weights pass through."""
    home = build.home(place)
    for stream in build.schedule.streams:
        if any(name == home and set(members) & set(g.weights) for name, lines in stream.lines for g in lines):
            return p.StreamRef(stream.name)
    early = {x.what for x in build.schedule.prefetches if x.kind == "weight"}
    return p.EarlyRef(p.ProductRef(place, members)) if early & set(members) else DIRECT
