"""Statements to ops: what multiplies, attends, looks up or sums over cores is taken out of expressions."""

from __future__ import annotations

from attrs import define, evolve, field, frozen

from ..model import ir as m
from ..model import ops as registry
from ..model.expressions import walk
from ..model.ir import Node, Type
from . import ir as p
from .build import LANES, STEP, Build, cannot, groups, is_partial, is_table, product
from .values import Split, linear, whole

# Caches that no schedule line prefetches go through so many slots of so many positions.
TILE_TOKENS, TILE_SLOTS = 256, 2


@frozen
class Mark:
    """A point in time: the place's `start`, or `before` or `after` what sets a value or uses a weight."""

    relation: str
    name: str


type Ops = list[p.Op | Mark]


@define
class Body:
    """One place being lowered; `ops` grow as its statements are. `tables` are this place's lookups so far."""

    build: Build
    place: str
    groups: dict[str, tuple[str, ...]]
    ops: Ops = field(factory=list)
    done: set[str] = field(factory=set)
    loaded: set[str] = field(factory=set)
    value: str = ""
    count: int = 0


def lower_body(build: Build, place: str, statements: tuple[m.Assign | m.Write, ...]) -> Ops:
    """The ops of a part, or of a step's statements before or after its loop."""
    body = Body(build, place, groups(build, place))
    body.ops.append(Mark("start", place))
    for statement in statements:
        name = statement.names[0] if isinstance(statement, m.Assign) else statement.state.split(".")[-1]
        body.value = name
        body.ops.append(Mark("before", f"{place}.{name}"))
        if isinstance(statement, m.Write):
            _write(statement, body)
        else:
            _assign(statement, body)
        body.ops.append(Mark("after", f"{place}.{name}"))
    return body.ops


def _assign(statement: m.Assign, body: Body) -> None:
    build, carried = body.build, _carried(body.build)
    node = _complete(_split(statement.value, body), statement.value.type, body)
    if statement.guard is not None and statement.guard.depends:
        raise cannot("a statement that only some layers run", statement.span)
    if _renames(statement, node, body):
        return
    outputs = []
    for name, type_ in zip(statement.names, statement.types, strict=True):
        if type_.dtype == "routes":
            raise cannot("route tokens to experts", statement.span)
        own = name in carried or body.place == STEP
        outputs.append(build.value(name if own else f"{body.place}.{name}", type_, "" if own else body.place,
                                   statement.span))  # fmt: skip
    body.ops.append(p.Compute(tuple(outputs), node, statement.guard, statement.span))
    _save(statement.value, body)


def _renames(statement: m.Assign, node: Node, body: Body) -> bool:
    """Whether a step's f32 value, such as the logits, is a product as it is: it needs no room of its own."""
    if isinstance(node, m.Call) and node.op == "f32":
        node = node.args[0]
    made = body.build.views.get(node.name) if isinstance(node, m.Local) else None
    if body.place != STEP or len(statement.names) > 1 or statement.guard is not None or made is None:
        return False
    name, type_ = statement.names[0], statement.types[0]
    if type_.dtype != "f32" or body.build.buffers[made.buffer].dtype != "f32" or name in body.build.views:
        return False
    body.build.views[name] = made
    return True


def _carried(build: Build) -> set[str]:
    return set(build.schedule.model.steps[""].types)


def _write(statement: m.Write, body: Body) -> None:
    """A cache's entry at the row's position: a buffer of its own, which leaves for an output of the call."""
    state = body.build.schedule.model.states[statement.state]
    if state.kind != "cache":
        raise cannot("buffers that are written element by element", statement.span)
    if statement.guard is not None:
        raise cannot("write a cache in some layers only", statement.span)
    node = _complete(_split(statement.value, body), statement.value.type, body)
    name = f"entry {state.name}"
    shape, dtype = _whole_lanes(body.build.shares.shape(state.type.shape)), body.build.dtype(state.type)
    slots = 2
    body.build.buffer(name, (slots, body.build.rows, *shape), dtype, "", statement.span)
    body.build.copies[name] = p.Copy(name, body.place, name, name, slots)
    layers = len(body.build.layers_of(body.place))
    body.build.outputs[name] = p.Array(name, (layers, body.build.rows, *shape), dtype, "entry", body.place)
    body.ops += [p.Saved(name, ahead=False), p.Compute((name,), node, None, statement.span), p.Save(name)]


def _whole_lanes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """As caches are kept: XLA would lay narrower arrays out in another order than the kernel reads them in."""
    return (*shape[:-1], -(-shape[-1] // LANES) * LANES)


def _save(value: Node, body: Body) -> None:
    """States that the statement's ops updated leave for HBM."""
    for node in walk(value):
        op = registry.find(node.op) if isinstance(node, m.Call) else None
        for parameter, arg in zip(
            op.parameters if op else (), node.args if isinstance(node, m.Call) else (), strict=True
        ):
            if op is not None and parameter in op.updates and isinstance(arg, m.StateRef):
                body.ops.append(p.Save(f"state {arg.name}"))


def _split(node: Node, body: Body) -> Split:
    """A node without products and the like, as the sum of what each core has a share of and what all have."""
    match node:
        case m.Call(op="matmul"):
            return _matmul(node, body)
        case m.Call(op="attend"):
            return whole(_attend(node, body))
        case m.Call(op="index") if isinstance(node.args[0], m.WeightRef) and is_table(body.build, node.args[0].name):
            return _lookup(node, body)
        case m.Call():
            op = registry.find(node.op)
            assert op is not None
            if op.caches or node.op in ("route", "mix", "index"):
                raise cannot(f"`{node.op}`", node.span)
            args = [whole(_state(a, body)) if isinstance(a, m.StateRef) else _split(a, body) for a in node.args]
            through = linear(node, args) if any(not a.complete for a in args) else None
            if through is not None:
                return through
            done = tuple(_complete(a, n.type, body) for a, n in zip(args, node.args, strict=True))
            return whole(evolve(node, args=done))
        case m.Select():
            if node.condition.depends:
                raise cannot("choose by the layer inside a statement", node.span)
            chosen = body.build.shares.instance.value(node.condition)
            return _split(node.then if chosen else node.other, body)
        case m.Let():
            bound = tuple((name, _complete(_split(value, body), value.type, body)) for name, value in node.bindings)
            inner = _split(node.body, body)
            return Split(
                *(None if part is None else m.Let(bound, part, node.span) for part in (inner.partial, inner.whole))
            )
        case m.Experts():
            raise cannot("experts", node.span)
        case m.Slice() | m.StateRef():
            raise cannot("read a buffer of earlier layers", node.span)
        case m.Static() if node.depends:
            raise cannot("a number that depends on the layer or the row", node.span)
    return whole(node)


def _complete(split: Split, type_: Type, body: Body) -> Node:
    """The value itself; what is partial is summed over the cores first."""
    if split.partial is None:
        assert split.whole is not None
        return split.whole
    build, node = body.build, split.partial
    body.count += 1
    name = f"{body.place}.{body.value}" + (f" {body.count}" if f"+{body.place}.{body.value}" in build.buffers else "")
    width = build.shares.shape(type_.shape)
    if len(width) != 1:
        raise cannot("sum matrices over cores", node.span)
    view = build.views.get(node.name) if isinstance(node, m.Local) else None
    if view is not None and view.start == 0 and view.shape == width and build.buffers[view.buffer].dtype == "f32":
        value = view.buffer
    else:
        value = build.buffer(f"share of {name}", (build.rows, width[0]), "f32", body.place, node.span)
        body.ops.append(p.Compute((value,), node, None, node.span))
    result = build.buffer(f"+{name}", (build.rows, width[0]), "f32", body.place, node.span)
    build.views[result] = p.View(result, 0, width)
    said = next((r for r in build.schedule.reduces if r.value == f"{body.place}.{body.value}"), None)
    build.exchanges[name] = p.Exchange(name, "sum", said.by if said else "direct", said.wire if said else "f32",
                                       tuple(axis for axis, _ in build.schedule.mesh), value, result, width[0],
                                       node.span)  # fmt: skip
    body.ops += [p.Send(name), p.Receive(name)]
    summed: Node = m.Local(result, type_, node.span)
    if split.whole is None:
        return summed
    return m.Call("add", (split.whole, summed), (), (type_,), node.span)


def _matmul(call: m.Call, body: Body) -> Split:
    weight, x = call.args
    if not isinstance(weight, m.WeightRef):
        raise cannot("multiply by a matrix that is no weight", call.span)
    local = m.Local(f"@{weight.name}", call.type, call.span)
    if weight.name not in body.done:
        members = body.groups[weight.name]
        body.done.update(members)
        operand = _complete(_split(x, body), x.type, body)
        dtype = body.build.dtype(weight.type)
        named = _buffer_of(operand, body) if isinstance(operand, m.Local) else None
        fits = named is not None and body.build.buffers[named].dtype == dtype
        made = product(body.build, body.place, members, named if fits else None, call.span)
        if made.operand != named:
            body.ops.append(p.Compute((made.operand,), operand, None, x.span))
        body.ops += [Mark("before", f"{body.place}.{w.split('.')[-1]}") for w in members]
        body.ops += _loops(made, body.build)
        body.ops += [Mark("after", f"{body.place}.{w.split('.')[-1]}") for w in members]
    return Split(local, None) if is_partial(body.build, weight.name) else whole(local)


def _buffer_of(local: m.Local, body: Body) -> str | None:
    for name in (local.name, f"{body.place}.{local.name}"):
        view = body.build.views.get(name)
        if view is not None and view.buffer == name:
            return name
    return None


def _loops(made: p.Product, build: Build) -> list[p.Op]:
    """Wait for an iteration's tiles, multiply, and let the slots' next transfers set out."""
    early = made.ring in {stream.name for stream in build.schedule.streams}
    found: list[p.Op] = []
    ahead = made.ring.startswith(f"{made.place}.")
    for number, run in enumerate(made.tiling.runs):
        start = p.Start(made.ring, len(run.rows))
        work: tuple[p.Op, ...] = (p.Wait(made.ring, run.rows), p.Dot(made.name, number))
        if early:
            work = (*work, start)
        elif not ahead:
            work = (start, *work)
        found += work if run.count == 1 else [p.Repeat("block", run.count, work)]
    return found


def _lookup(call: m.Call, body: Body) -> Split:
    table, index = call.args
    assert isinstance(table, m.WeightRef)
    build, name = body.build, f"row of {table.name}"
    declared = build.schedule.model.weights[table.name]
    share, width = build.shares.weight_shape(declared)
    dtype = build.dtype(declared.type)
    whole_width = build.shares.instance.length(declared.shape[1])
    if width != whole_width:
        raise cannot("look up rows whose columns are shared out", call.span)
    words = -(-width // (256 if dtype == "bf16" else 128)) * 128
    if name not in build.buffers:
        build.buffer(name, (build.rows, 1, words), "int32", "", call.span)
        build.views[f"@{table.name}"] = p.View(name, 0, (width,))
        build.arrays[f"table {table.name}"] = p.Array(f"table {table.name}", (share, 1, words), "int32", "table")
    cut = share != build.shares.instance.length(declared.shape[0])
    body.ops.append(p.Lookup(f"table {table.name}", index, name, share if cut else None))
    local = m.Local(f"@{table.name}", call.type, call.span)
    return Split(local, None) if cut else whole(local)


def _state(ref: m.StateRef, body: Body) -> m.StateRef:
    """A state that an op updates; it has arrived before its first use."""
    build, name = body.build, f"state {ref.name}"
    state = build.schedule.model.states[ref.name]
    if name not in build.copies:
        if state.kind != "state" or state.part != body.place:
            raise cannot(f"a {state.kind} of this kind", ref.span)
        shape, dtype = build.shares.shape(state.type.shape), build.dtype(state.type)
        early = any(x.kind == "state" and x.what == body.place for x in build.schedule.prefetches)
        slots, layers = 2 if early else 1, len(build.layers_of(body.place))
        build.buffer(name, (slots, build.rows, *shape), dtype, "", state.span)
        build.views[name] = p.View(name, 0, shape)
        build.copies[name] = p.Copy(name, body.place, name, name, slots)
        array = p.Array(name, (layers, build.rows, *shape), dtype, "state", body.place)
        build.arrays[name], build.outputs[name] = array, array
    if name not in body.loaded:
        body.loaded.add(name)
        body.ops.append(p.Loaded(name))
    return ref


def _attend(call: m.Call, body: Body) -> Node:
    q, *caches = call.args
    build = body.build
    states = [build.schedule.model.states[c.name] for c in caches if isinstance(c, m.StateRef)]
    if len(states) != 2 or any(s.last is not None for s in states):
        raise cannot("attend to a window of the cache", call.span)
    query = _complete(_split(q, body), q.type, body)
    body.count += 1
    name = f"{body.place}.attend {body.count}"
    said = next((x for x in build.schedule.prefetches if x.kind == "cache" and x.what == body.place), None)
    tile = min((said and said.tile) or TILE_TOKENS, -(-build.schedule.context // 128) * 128)
    slots = (said and said.slots) or TILE_SLOTS
    ring = f"cache {body.place}"
    if ring in build.caches:
        raise cannot("attend twice in one part", call.span)
    buffers = []
    for state in states:
        heads, width = _whole_lanes(build.shares.shape(state.type.shape))
        dtype = build.dtype(state.type)
        buffers.append(build.buffer(f"tiles of {state.name}", (slots, heads, tile, width), dtype, "", state.span))
        room = -(-build.schedule.context // tile) * tile
        entries = (len(build.layers_of(body.place)), build.rows, heads, room, width)
        build.arrays[state.name] = p.Array(state.name, entries, dtype, "cache", body.place)
    build.caches[ring] = p.CacheRing(ring, body.place, tuple(s.name for s in states), tuple(buffers), tile, slots)
    held = build.buffer(f"query of {name}", (build.rows, *_whole_lanes(build.shares.shape(q.type.shape))),
                        build.dtype(Type("bf16")), body.place, q.span)  # fmt: skip
    result = build.buffer(
        name, (build.rows, *_whole_lanes(build.shares.shape(call.type.shape))), "f32", body.place, call.span
    )
    build.views[result] = p.View(result, 0, build.shares.shape(call.type.shape))
    body.ops.append(p.Compute((held,), query, None, q.span))
    if said is None:
        body.ops.append(p.StartTiles(ring))
    body.ops.append(p.Attend(ring, call, held, tuple(f"entry {s.name}" for s in states), result))
    return m.Local(result, call.type, call.span)
