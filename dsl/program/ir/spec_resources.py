"""What the things are that ops are given: views, products, copies, caches, experts, collectives, arrays and numbers.

`RESOURCES` has a row for each kind. Each says what the definition and the schedule make of a thing, as claims: what it
has, and what it must have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ...collectives.collective import Operation
from ...model import ir as m
from ...schedule.blocks import BLOCK
from ...schedule.blocks import STEP as POSITIONS
from ...schedule.blocks import room as room_of_cores
from ...targets.lanes import LANES
from ...targets.targets import BYTES
from .. import ir as p
from ..layout.expert_layout import expert_layout
from ..layout.tiling import Tiling, by_head, tiling
from .spec_access import Wrong
from .spec_arrays import made_of, room_of
from .spec_compute import width_of
from .spec_transfers import cached


class Claim(NamedTuple):
    """`name` has `found` where it must have `wanted`; `what` says of what."""

    name: m.Ref | str
    what: str
    found: object
    wanted: object


type Rule = Callable[[Any, p.Program], Iterator[Claim]]


def claims(program: p.Program) -> Iterator[Claim]:
    """Of all things, those that do not hold. Raises `Wrong` for what cannot be at all."""
    for kind, rule in RESOURCES.items():
        for name, thing in getattr(program, kind).items():
            try:
                found = list(rule((name, thing) if kind in ("views", "scalars", "turns") else thing, program))
            except (LookupError, ValueError, ArithmeticError) as e:
                raise Wrong(f"`{name}` of the {kind} is made of what is not there: {e}") from e
            yield from (claim for claim in found if claim.found != claim.wanted)
            if hasattr(thing, "name") and thing.name != name:
                yield Claim(str(name), "its name", thing.name, name)


def _view(named: tuple[m.Ref, p.View], program: p.Program) -> Iterator[Claim]:
    """Inside its buffer's rows; of a layer's weights, as packing lays them."""
    name, view = named
    held = program.buffers.get(view.buffer)
    if held is None:
        raise Wrong(f"`{name}` lies in `{view.buffer}`, which is no buffer")
    known = program.weight_keys.get(name) if isinstance(name, p.SmallWeightRef) else None
    if known is not None:
        place, weight = known
        shape = program.shares.weight_shape(weight)
        yield Claim(name, "its buffer", view.buffer, p.SmallWeightsRef(place))
        yield Claim(name, "its shape", (view.shape, view.transposed), (shape, len(shape) == 2))
        columns, lanes = room_of(view), held.shape[-1]
    else:
        columns, lanes = view.start + width_of(view, held), held.shape[-1] * (2 if held.dtype == "int32" else 1)
        words = held.dtype == "int32" and len(held.shape) > 1  # a table's row
        slots = 2 if words or view.buffer in program.copies else 1
        yield Claim(name, "its axes", (len(view.shape), view.transposed), (len(held.shape) - slots, False))
        if name in program.buffers:
            yield Claim(name, "its buffer", view.buffer, name)
        if len(view.shape) > 1:
            rows = held.shape[:1] if name in _results(program) else held.shape[-len(view.shape) : -1]
            yield Claim(name, "its rows", view.shape[:-1], rows)
    yield Claim(name, f"that it ends within {lanes} columns", 0 <= view.start <= columns <= lanes, True)


def _results(program: p.Program) -> set[p.BufferRef]:
    """Results of products by head, which have heads first."""
    return {made.result for made in program.products.values() if made.piece}


def _ring(ring: p.Ring, program: p.Program) -> Iterator[Claim]:
    stream = next((stream for stream in program.schedule.streams if p.StreamRef(stream.name) == ring.name), None)
    yield Claim(ring.name, "that it is filled ahead", ring.ahead, stream is not None)
    yield Claim(ring.name, "slots", ring.slots, max(ring.slots, 1) if stream is None else stream.slots)
    transfers = [rows for made in program.products.values() if made.ring == ring.name for rows in made.tiling.transfers]
    yield Claim(ring.name, "rows of a slot", ring.rows, max(transfers, default=0))


def _product(made: p.Product, program: p.Program) -> Iterator[Claim]:
    """The tiling follows from what is multiplied together, as packing cuts it."""
    instance, shares = program.instance, program.shares
    weights = [instance.model.weights[name] for name in made.weights]
    if made.ring not in program.rings:
        raise Wrong(f"`{made.name}` comes through `{made.ring}`, which is no ring")
    (dtype, *others) = dict.fromkeys(instance.dtype(weight.type) for weight in weights)
    yield Claim(made.name, "the type of its weights", (made.dtype, *others), (dtype,))
    yield from _own_weights(made, weights, program)
    heads: tuple[int, ...] = ()
    if made.piece:
        wanted, widths, heads = _of_heads(made, program)
    else:
        widths = tuple(shares.weight_shape(weight)[0] for weight in weights)
        wanted = tiling(sum(widths), shares.weight_shape(weights[0])[-1], 8 * BYTES[dtype])
    yield Claim(made.name, "its rows of weights", made.widths, widths)
    yield Claim(made.name, "its tiles", made.tiling, wanted)
    for name, columns in ((made.operand, wanted.inputs), (made.result, wanted.outputs)):
        yield Claim(name, "its shape", program.buffers[name].shape, (*heads, program.rows_at(made.place), columns))


def _own_weights(made: p.Product, weights: list[m.Weight], program: p.Program) -> Iterator[Claim]:
    """A step's of the model; a part's of the same layers."""
    home = program.home(made.place)
    for weight in weights:
        if program.is_step(home) or weight.part is None:
            yield Claim(made.name, "its weights' part", weight.part, None if program.is_step(home) else home)
        else:
            held = set(program.instance.owner_layers(weight.part) or ())
            inside = set(program.layers_of(home)) <= held
            yield Claim(made.name, f"that `{weight.part}` has weights in its layers", inside, True)


def _of_heads(made: p.Product, program: p.Program) -> tuple[Tiling, tuple[int, ...], tuple[int, ...]]:
    """Queries through each head's part of a weight, or results."""
    (call,) = program.shares.facts.latent_attention(made.place)
    q, latent, common, _ = call.args
    (heads, key), (_, value) = (program.shares.shape(x.type.shape) for x in (q, call))
    rank, apart = (program.shares.length(x.type.shape[-1]) for x in (latent, common))
    outputs, inputs = {"absorb": (rank, key - apart), "expand": (value, rank)}.get(made.piece, (0, 0))
    found = by_head(tiling(outputs, inputs, 8 * BYTES[made.dtype]), heads) if outputs else None
    if found is None:
        raise Wrong(f"`{made.name}` multiplies heads by a piece `{made.piece}`, of which nothing is known")
    return found, (outputs,), (heads,)


def _copy(copy: p.Copy, program: p.Program) -> Iterator[Claim]:
    if copy.array not in program.arrays and copy.name not in program.outputs:
        raise Wrong(f"`{copy.name}` moves `{copy.array}`, which is nowhere in HBM")
    yield Claim(copy.name, "what it moves", copy.array, copy.name)
    yield Claim(
        copy.name, f"room for {copy.slots} slots", 1 <= copy.slots <= program.buffers[copy.buffer].shape[0], True
    )
    for held in (program.arrays.get(copy.array), program.outputs.get(copy.name)):
        if held is not None:
            yield Claim(copy.name, "its part", copy.part, held.part)


def _cache(ring: p.CacheRing, program: p.Program) -> Iterator[Claim]:
    """All positions of a context, or this core's blocks of them."""
    schedule = program.schedule
    over, context = schedule.over_positions, schedule.context
    yield Claim(ring.name, "the axes over which positions lie", ring.axes, over)
    if ring.window is not None:
        seen = ring.window + program.phase_of(ring.part).rows - 1
        context = min(context, -(-seen // BLOCK) * BLOCK)
    whole = room_of_cores(context, schedule.ways(over)) if over else context
    yield Claim(ring.name, "positions", ring.positions, whole)
    own = [name for name in ring.caches if isinstance(name, p.ModelCacheRef) and ring.expanded is None]
    lasts = [program.instance.model.states[name.state].last for name in own]
    windows = {
        None if last is None else program.instance.number(last, layer)
        for last in lasts
        for layer in program.layers_of(ring.part)
    }
    yield Claim(ring.name, "positions that it sees", {ring.window}, windows or {None})
    yield Claim(ring.name, f"tiles in steps of {POSITIONS}", ring.tile > 0 and ring.tile % POSITIONS == 0, True)
    yield Claim(ring.name, "a buffer for each cache", len(set(ring.buffers)), len(ring.caches))
    kept = ring.expanded
    kinds: dict[p.CacheRef, str] = dict.fromkeys(ring.caches, "cache") | dict.fromkeys(
        (kept.latent, kept.common) if kept else (), "latents"
    )
    for name, kind in kinds.items():
        yield Claim(name, "its kind", program.arrays[name].kind, kind)
    for name, buffer in zip(ring.caches, ring.buffers, strict=True):
        heads, width, dtype = cached(name, ring, program)
        held = program.buffers[buffer]
        yield Claim(ring.name, f"room for {ring.slots} slots", 1 <= ring.slots <= held.shape[0], True)
        yield Claim(buffer, "its tiles", (held.shape[1:], held.dtype), ((heads, ring.tile, width), dtype))


def _bank(bank: p.ExpertPool, program: p.Program) -> Iterator[Claim]:
    """This core's experts of all that the routes choose among, laid out as packing does."""
    model, shares, schedule = program.instance.model, program.shares, program.schedule
    declared = [[model.weights[name] for name in names] for names in bank.products]
    experts = declared[0][0].shape[0]
    count = shares.weight_shape(declared[0][0])[0]
    yield Claim(bank.name, "experts of a core", bank.count, count)
    yield Claim(bank.name, "the axes over which experts lie", bank.axes, shares.over(experts))
    all_ = count * schedule.ways(bank.axes) >= program.instance.length(experts)
    yield Claim(bank.name, "all experts on some core", all_, True)
    yield Claim(
        bank.name,
        "room for those that may be chosen",
        bank.most,
        min(count, program.rows_at(bank.part) * bank.top),
    )
    yield Claim(bank.name, "its part", {weight.part for each in declared for weight in each}, {bank.part})
    room = 1 <= bank.slots <= program.buffers[bank.name].shape[0]
    yield Claim(bank.name, f"room for {bank.slots} slots", room, True)
    made = []
    for names, each in zip(bank.products, declared, strict=True):
        own = [shares.weight_shape(weight) for weight in each]
        made.append(("+".join(names), tuple(shape[1] for shape in own), own[0][2], _codec(program, bank, names)))
    yield Claim(bank.name, "its layout", bank.layout, expert_layout(made))


def _codec(program: p.Program, bank: p.ExpertPool, names: tuple[str, ...]) -> m.Codec:
    """As the schedule keeps it; what a checkpoint has as plain numbers stays so, which the definition does not say."""
    weight = program.instance.model.weights[names[0]]
    plain = m.Codec(program.instance.dtype(weight.type))
    store = next((s.codec for s in program.schedule.stores if s.weight == weight.name), None)
    said = next((each.codec for each in bank.layout.products if each.name == "+".join(names)), None)
    stored = weight.codec.name == "mxfp4" and (said is None or said != plain)
    return store or (weight.codec if stored else plain)


def _exchange(made: p.Collective, program: p.Program) -> Iterator[Claim]:
    """Cores along axes of the mesh that its kind is for, and a type in which it can travel."""
    schedule, kind = program.schedule, made.kind
    if kind.operation not in set(Operation):
        raise Wrong(f"nothing is known of what `{kind.name}` makes, `{kind.operation}`")
    order = tuple(name for name, _ in schedule.mesh if name in made.axes)
    yield Claim(made.name, "axes of the mesh in its order", made.axes, order)
    yield Claim(made.name, "several cores", schedule.ways(made.axes) > 1, True)
    yield Claim(made.name, f"a type in which {kind.name} travels", made.wire in kind.wires, True)
    unfit = kind.unfit(schedule.ways(made.axes), schedule.paired(made.axes))
    yield Claim(made.name, f"cores for {kind.name}", unfit, None)
    if kind.operation is Operation.SOFTMAX_MERGE:
        yield Claim(made.name, "its first column", made.first, 0)
    if kind.operation is Operation.ARGMAX:
        yield Claim(made.name, "its result", made.result, None)
        yield Claim(made.name, "its axes", made.axes, schedule.over_all)
        yield Claim(made.name, "its columns", (made.first, made.width), (0, LANES))


def _turns(named: tuple[str, p.RopeTables], program: p.Program) -> Iterator[Claim]:
    key, made = named
    step = next((phase.step.name for phase in program.phases if made in phase.body), m.DECODE)
    yield Claim(key, "what it turns by", p.rope_key(made.call, made.channels, program.instance, step), key)
    yield Claim(key, "cosines apart from sines", made.cos != made.sin, True)


def _scalar(named: tuple[m.Static, tuple[float, ...]], program: p.Program) -> Iterator[Claim]:
    """Each layer's."""
    static, values = named
    known = [program.instance.by_layer(static, phase.step.name) for phase in program.phases]
    yield Claim(static.span.text, "its values", values, values if values in known else known[0])


def _array(array: p.Array, program: p.Program) -> Iterator[Claim]:
    yield Claim(array.name, "its shape and type", (array.shape, array.dtype), made_of(array, program))


# One row for each kind of thing that a Program has; buffers are what ops and views say of them.
RESOURCES: dict[str, Rule] = {
    "views": _view,
    "rings": _ring,
    "products": _product,
    "copies": _copy,
    "caches": _cache,
    "banks": _bank,
    "exchanges": _exchange,
    "turns": _turns,
    "scalars": _scalar,
    "arrays": _array,
    "outputs": _array,
}
