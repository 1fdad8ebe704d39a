"""What a Program is made of while it is being lowered: names, buffers, products and their rings."""

from __future__ import annotations

from math import prod

from attrs import define, field

from ..diagnostics import Diagnostic, Label, MksError
from ..model import ir as m
from ..model.expressions import walk
from ..model.facts import Facts, same_operand
from ..schedule.ir import Group, Schedule, Stream
from ..schedule.shares import Shares
from ..source import Span
from . import ir as p
from .tiles import tiling

_BITS = {"bf16": 16, "f32": 32, "int32": 32}
LANES = 128
STEP = "step"
DIRECT = "weights"


def cannot(what: str, span: Span | None, *helps: str) -> MksError:
    """The error for what kernels do not do."""
    at = None if span is None else Label(span)
    return MksError([Diagnostic("E901", f"kernels cannot do this yet: {what}", at, helps=helps)])


@define
class Build:
    """Grows while statements are lowered; `facts` and `shares` are those of the schedule."""

    schedule: Schedule
    shares: Shares
    facts: Facts
    rows: int
    buffers: dict[str, p.Buffer] = field(factory=dict)
    views: dict[str, p.View] = field(factory=dict)
    rings: dict[str, p.Ring] = field(factory=dict)
    products: dict[str, p.Product] = field(factory=dict)
    copies: dict[str, p.Copy] = field(factory=dict)
    caches: dict[str, p.CacheRing] = field(factory=dict)
    exchanges: dict[str, p.Exchange] = field(factory=dict)
    arrays: dict[str, p.Array] = field(factory=dict)
    outputs: dict[str, p.Array] = field(factory=dict)

    def dtype(self, type_: m.Type) -> str:
        """A type's, with the working type filled in."""
        return self.shares.instance.dtype(type_)

    def buffer(self, name: str, shape: tuple[int, ...], dtype: str, place: str, span: Span | None = None) -> str:
        """Room for something new."""
        assert name not in self.buffers
        self.buffers[name] = p.Buffer(name, shape, dtype, place, span)
        return name

    def value(self, name: str, type_: m.Type, place: str, span: Span, dtype: str | None = None) -> str:
        """Room for a value of every row, known by its name; the same room if the name is assigned again."""
        if name not in self.buffers:
            shape = self.shares.shape(type_.shape)
            self.buffer(name, (self.rows, *shape), dtype or self.dtype(type_), place, span)
            self.views[name] = p.View(name, 0, shape)
        return name

    def layers_of(self, part: str) -> tuple[int, ...]:
        """The layers that run a part in the decode step."""
        return tuple(layer for layer, parts in self.shares.instance.layer_parts("").items() if part in parts)


def groups(build: Build, place: str) -> dict[str, tuple[str, ...]]:
    """For each weight that a place multiplies, those of its product: a stream's group, or all that share an operand.

    The members' order, and so every sum, depends on the model alone: those that fill whole lanes first, then the
    others, each in the order of use.
    """
    said: dict[str, Group] = {}
    for stream in build.schedule.streams:
        for name, lines in stream.lines:
            if name == place:
                said |= {weight: group for group in lines for weight in group.weights}
    found: list[tuple[object, m.Node, list[str]]] = []
    for weight, operand, key in _multiplied(build, place):
        for other_key, other, members in found:
            together = said[weight] is said.get(members[0]) if weight in said else members[0] not in said
            if together and other_key == key and same_operand(other, operand):
                members.append(weight)
                break
        else:
            found.append((key, operand, [weight]))
    made: dict[str, tuple[str, ...]] = {}
    for _, _, members in found:
        wide = [w for w in members if _rows(build, w) % LANES == 0]
        made |= dict.fromkeys(members, (*wide, *(w for w in members if w not in wide)))
    return made


def _multiplied(build: Build, place: str) -> list[tuple[str, m.Node, object]]:
    """Weights in the order of use, their operands, and what two must agree in to be one product."""
    version: dict[str, int] = {}
    found: list[tuple[str, m.Node, object]] = []
    for statement in build.facts.bodies[place]:
        for node in walk(statement.value):
            if isinstance(node, m.Call) and node.op == "matmul" and isinstance(node.args[0], m.WeightRef):
                weight, operand = node.args[0].name, node.args[1]
                used = tuple(sorted((n.name, version.get(n.name, 0)) for n in walk(operand) if isinstance(n, m.Local)))
                found.append((weight, operand, (used, build.dtype(node.args[0].type), is_partial(build, weight))))
        for name in statement.names if isinstance(statement, m.Assign) else ():
            version[name] = version.get(name, 0) + 1
    return found


def _rows(build: Build, weight: str) -> int:
    return build.shares.weight_shape(build.schedule.model.weights[weight])[0]


def is_partial(build: Build, weight: str) -> bool:
    """Whether a product with a weight gives each core a share of a sum."""
    declared = build.schedule.model.weights[weight]
    return build.shares.weight_shape(declared)[-1] != build.shares.instance.length(declared.shape[-1])


def product(build: Build, place: str, members: tuple[str, ...], operand: str | None, span: Span) -> p.Product:
    """A product's buffers and its ring; `operand` is a buffer that holds it as it is needed, if there is one."""
    weights = [build.schedule.model.weights[name] for name in members]
    dtype = build.dtype(weights[0].type)
    widths = tuple(_rows(build, name) for name in members)
    inputs = build.shares.weight_shape(weights[0])[-1]
    tiles = tiling(sum(widths), inputs, _BITS[dtype])
    name = f"{place}.{'+'.join(w.split('.')[-1] for w in members)}"
    if operand is None or build.buffers[operand].shape != (build.rows, tiles.inputs):
        operand = build.buffer(f"operand of {name}", (build.rows, tiles.inputs), dtype, place, span)
    result = build.buffer(f"product {name}", (build.rows, tiles.outputs), "f32", place, span)
    made = p.Product(name, place, members, widths, dtype, tiles, ring_of(build, place, members), operand, result, span)
    build.products[name] = made
    at = 0
    for weight, width in zip(members, widths, strict=True):
        build.views[f"@{weight}"] = p.View(result, at, (width,))
        at += width
    return made


def ring_of(build: Build, place: str, members: tuple[str, ...]) -> str:
    """The ring that a product's weights pass through."""
    for stream in build.schedule.streams:
        if any(name == place and set(members) & set(g.weights) for name, lines in stream.lines for g in lines):
            return stream.name
    early = {x.what for x in build.schedule.prefetches if x.kind == "weight"}
    return f"{place}.{'+'.join(w.split('.')[-1] for w in members)}" if early & set(members) else DIRECT


def make_rings(build: Build) -> None:
    """Each ring's slots, once all products are known; checks that what is waited for together fits."""
    streams = {stream.name: stream for stream in build.schedule.streams}
    found: list[Diagnostic] = []
    for name in dict.fromkeys(product.ring for product in build.products.values()):
        own = [product for product in build.products.values() if product.ring == name]
        most = max(len(run.rows) for product in own for run in product.tiling.runs)
        rows = max(max(product.tiling.transfers) for product in own)
        stream = streams.get(name)
        if stream is None:
            slots = most if name == DIRECT else max(len(product.tiling.transfers) for product in own)
            build.rings[name] = p.Ring(name, slots, rows, False)
            continue
        build.rings[name] = p.Ring(name, stream.slots, rows, True, stream.slots_span)
        found += _fits(own, stream)
    if found:
        raise MksError(found)


def _fits(own: list[p.Product], stream: Stream) -> list[Diagnostic]:
    """What is wrong with a stream's slots for its products; the largest of them is shown."""
    wide = max(own, key=lambda product: max(product.tiling.transfers))
    deep = max(own, key=lambda product: max(len(run.rows) for run in product.tiling.runs))
    tile = max(wide.tiling.transfers) * 2048
    together = max(len(run.rows) for run in deep.tiling.runs)
    found = []
    if tile > stream.slot:
        found.append(Diagnostic(
            "E214", f"a transfer of `{wide.name}` takes {tile // 1024} KiB; a slot has {stream.slot // 1024}",
            Label(stream.slot_span), (Label(wide.span, f"`{wide.name}`"),),
            ("a product's tiles follow from its shape, so that slots change no bit of the result",),
            (f"write `slot = {tile // 1024} KiB`",)))  # fmt: skip
    if together > stream.slots:
        found.append(Diagnostic(
            "E215", f"`{deep.name}` waits for {together} transfers at once; {stream.slots} slots never hold them",
            Label(stream.slots_span), (Label(deep.span, f"`{deep.name}`"),),
            helps=(f"write `slots = {together}` or more",)))  # fmt: skip
    return found


def vectors(build: Build, place: str) -> None:
    """One row of f32 in HBM for each layer with all that a place reads besides its products' matrices."""
    multiplied = {w for members in groups(build, place).values() for w in members}
    names: dict[str, None] = {}
    for statement in build.facts.bodies[place]:
        for node in walk(statement.value):
            if isinstance(node, m.WeightRef) and node.name not in multiplied and not is_table(build, node.name):
                names[node.name] = None
    at = 0
    for name in names:
        declared = build.schedule.model.weights[name]
        shape = build.shares.weight_shape(declared)
        lines, width = shape[::-1] if len(shape) == 2 else (1, prod(shape))
        build.views[name] = p.View(f"vectors {place}", at, shape, transposed=len(shape) == 2)
        at += lines * -(-width // LANES) * LANES
    if at:
        early = any(x.kind == "vectors" for x in build.schedule.prefetches) and place != STEP
        slots, part = 2 if early else 1, None if place == STEP else place
        name = build.buffer(f"vectors {place}", (slots, 1, at), "f32", "")
        build.copies[name] = p.Copy(name, part, name, name, slots)
        layers = 1 if part is None else len(build.layers_of(place))
        build.arrays[name] = p.Array(name, (layers, 1, at), "f32", "vectors", part)


def is_table(build: Build, weight: str) -> bool:
    """Whether a weight is looked up row by row."""
    return any(isinstance(n, m.Call) and n.op == "index" and isinstance(n.args[0], m.WeightRef)
               and n.args[0].name == weight and len(n.args[0].type.shape) == 2
               for body in build.facts.bodies.values() for s in body for n in walk(s.value))  # fmt: skip
