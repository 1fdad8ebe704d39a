"""What a Program is made of while it is being lowered: names, buffers, products and their rings."""

from __future__ import annotations

from attrs import evolve, field

from ...diagnostics import Diagnostic, Label, MksError
from ...model import ir as m
from ...model.expressions import walk
from ...model.facts import STEP, Facts, same_operand
from ...model.shapes import Poly
from ...records import define
from ...schedule.ir import Group, Schedule, Stream
from ...schedule.shares import Shares
from ...source import Span
from ...targets.lanes import LANES
from ...targets.targets import BYTES
from .. import ir as p
from ..layout.tiling import ROW_BYTES, by_head, tiling

DIRECT = "unstreamed weights"  # no stream can have this name


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
    buffers: dict[str, p.Buffer] = field(factory=dict)
    views: dict[str, p.View] = field(factory=dict)
    rings: dict[str, p.Ring] = field(factory=dict)
    products: dict[str, p.Product] = field(factory=dict)
    copies: dict[str, p.Copy] = field(factory=dict)
    caches: dict[str, p.CacheRing] = field(factory=dict)
    exchanges: dict[str, p.Collective] = field(factory=dict)
    arrays: dict[str, p.Array] = field(factory=dict)
    outputs: dict[str, p.Array] = field(factory=dict)
    banks: dict[str, p.ExpertPool] = field(factory=dict)
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

    def full(self, name: str, place: str) -> str:
        """By what name all know a value that a place names: in a loop over rows, one of the whole step's or its own."""
        if name in self.carried or place == self.place:
            return f"{self.step.name}.{name}" if self.step.name else name
        return f"{place}.{name}"

    def known(self, name: str, place: str) -> str | None:
        """By what name all know a value that a place reads; as `Program.name_at`."""
        for owner in dict.fromkeys((place, self.home(place), self.step.name)):
            if (full := f"{owner}.{name}") in self.views:
                return full
        return name if name in self.views else None

    def product_view(self, weight: str, place: str) -> str:
        """By what name all know a weight's product: the owner's by the weight's, any other's by the place's too."""
        declared = self.schedule.model.weights[weight]
        mine = declared.part == self.home(place) or (
            declared.part is None and self.is_step(place) and not self.step.name
        )
        return f"@{weight}" if mine else f"{place}.@{weight}"

    def dtype(self, type_: m.Type) -> str:
        """A type's, with the working type filled in."""
        return self.shares.instance.dtype(type_)

    def buffer(self, name: str, shape: tuple[int, ...], dtype: str, place: str, span: Span | None = None) -> str:
        """Room for something new."""
        assert name not in self.buffers
        self.buffers[name] = p.Buffer(name, shape, dtype, place, span)
        return name

    def held(self, name: str, shape: tuple[int, ...], dtype: str, place: str, span: Span) -> str:
        """Room for something new of every row, and the value of that name in it."""
        self.views[name] = p.View(name, 0, shape)
        return self.buffer(name, (self.rows, *shape), dtype, place, span)

    def value(self, name: str, type_: m.Type, place: str, span: Span, dtype: str | None = None) -> str:
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


def product(build: Build, place: str, members: tuple[str, ...], operand: str | None, span: Span) -> p.Product:
    """A product's buffers and its ring; `operand` is a buffer that holds it as it is needed, if there is one."""
    weights = [build.schedule.model.weights[name] for name in members]
    dtype = build.dtype(weights[0].type)
    widths = tuple(_rows(build, name) for name in members)
    inputs = build.shares.weight_shape(weights[0])[-1]
    tiles = tiling(sum(widths), inputs, 8 * BYTES[dtype])
    name = f"{place}.{'+'.join(w.split('.')[-1] for w in members)}"
    if operand is None or build.buffers[operand].shape != (build.rows, tiles.inputs):
        operand = build.buffer(f"operand of {name}", (build.rows, tiles.inputs), dtype, place, span)
    result = build.buffer(f"product {name}", (build.rows, tiles.outputs), "f32", place, span)
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


def head_product(build: Build, place: str, weight: str, piece: str, heads: int, outputs: int, inputs: int,
                 span: Span) -> p.Product:  # fmt: skip
    """Products of each head with its own part of a weight: operand and result are `[heads, rows, …]`."""
    declared = build.schedule.model.weights[weight]
    dtype = build.dtype(declared.type)
    tiles = by_head(tiling(outputs, inputs, 8 * BYTES[dtype]), heads)
    if tiles is None:
        raise cannot(f"multiply each head by a matrix {[outputs, inputs]}", span)
    name = f"{place}.{weight.split('.')[-1]} {piece}"
    # Twice the rows: what is f32 goes through the unit in two halves.
    operand = build.buffer(f"operand of {name}", (heads, build.rows, tiles.inputs), "f32", place, span)
    result = build.buffer(f"product {name}", (heads, build.rows, tiles.outputs), "f32", place, span)
    build.views[result] = p.View(result, 0, (heads, outputs))
    ring = ring_of(build, place, (weight,))
    made = p.Product(name, place, (weight,), (outputs,), dtype, tiles, ring, operand, result, span, piece)
    build.products[name] = made
    return made


def ring_of(build: Build, place: str, members: tuple[str, ...]) -> str:
    """The ring that a product's weights pass through."""
    home = build.home(place)
    for stream in build.schedule.streams:
        if any(name == home and set(members) & set(g.weights) for name, lines in stream.lines for g in lines):
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
    tile = max(wide.tiling.transfers) * ROW_BYTES
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
