"""Statements to ops: what multiplies, attends, looks up or sums over cores is taken out of expressions."""

from __future__ import annotations

from attrs import evolve

from ...model import ir as m
from ...model import ops as registry
from ...model.expressions import walk
from ...model.facts import names_of
from ...model.ir import Node
from .. import ir as p
from .along import refuse_along, whole_along
from .attention import attend, attend_latent, write_entries
from .block_attention import attend_block
from .build import Build, cannot, groups, layer_scalar
from .expanded_cache import attend_expanded, is_expanded
from .frame import Frame, Mark, Ops
from .lookup import argmax, look_up
from .matmul import matmul
from .moe import expert_matmul, experts, route
from .options import by_layer
from .partials import axes
from .reduce import complete, norm_of_share, scattered
from .sharded_value import ShardedValue, linear, whole
from .small_weights import is_table


def lower_body(
    build: Build, place: str, statements: tuple[m.Statement, ...], later: frozenset[str] = frozenset()
) -> Ops:
    """The ops of a part, or of a step's statements before or after its loop over layers; `later` are names read then.

    A loop over rows is one op.
    """
    own = tuple(s for s in statements if isinstance(s, m.Assign | m.Write))
    frame = Frame(build, place, groups(build, place, own), split, own)
    frame.ops.append(Mark("start", place))
    for i, statement in enumerate(statements):
        if isinstance(statement, m.Loop):
            _rows(statement, later | _read(statements[i + 1 :]), frame)
        else:
            assert isinstance(statement, m.Assign | m.Write)
            _statement(statement, frame)
    frame.arrive(set(frame.late))
    return frame.ops


def _read(statements: tuple[m.Statement, ...]) -> frozenset[str]:
    """The names that statements read."""
    inner = [s for loop in statements if isinstance(loop, m.Loop) for s in loop.body]
    values = [s.value for s in (*statements, *inner) if isinstance(s, m.Assign | m.Write)]
    return frozenset(node.name for value in values for node in walk(value) if isinstance(node, m.Local))


def _statement(statement: m.Assign | m.Write, frame: Frame) -> None:
    build, place = frame.build, frame.place
    frame.value = names_of(statement)[0]
    frame.ops.append(Mark("before", f"{place}.{frame.value}"))
    frame.arrive({node.name for node in walk(statement.value) if isinstance(node, m.Local)})
    if isinstance(statement, m.Assign):
        _assign(statement, frame)
    elif build.schedule.model.states[statement.state].kind == "cache":
        _entry(statement, frame)
    else:
        _put(statement, frame)
    frame.ops.append(Mark("after", f"{place}.{frame.value}"))


def _rows(loop: m.Loop, later: frozenset[str], outer: Frame) -> None:
    """Row after row: names set before it and in it go from row to row; of those read `later` all rows are kept."""
    build, home, place = outer.build, outer.place, f"{outer.place}.row"
    if place in build.homes:
        raise cannot("two loops over rows in one place", loop.span)
    statements = tuple(s for s in loop.body if isinstance(s, m.Assign | m.Write))
    start, stop = (int(build.shares.instance.number(bound)) for bound in (loop.start, loop.stop))
    if len(statements) < len(loop.body) or (start, stop) != (0, build.rows):
        raise cannot(f"loop over the rows {start} .. {stop} of {build.rows}", loop.span)
    inner, carried = build.inside(place, home), []
    types = {n: t for s in statements if isinstance(s, m.Assign) for n, t in zip(s.names, s.types, strict=True)}
    if any(isinstance(s, m.Write) or isinstance(n, m.StateRef) for s in statements for n in walk(s.value)):
        raise cannot("read or write a state, cache or buffer in a loop over rows", loop.span)
    outer.arrive(_read(statements))
    if crossing := sorted(types.keys() & build.carried):
        raise cannot(f"assign `{crossing[0]}`, which goes from layer to layer, in a loop over rows", loop.span)
    for name, type_ in types.items():
        before = build.value_of(name, home)
        if before is not None and name in later:
            raise cannot(f"read all rows of `{name}`, which goes from row to row", loop.span)
        if before is not None:
            carried.append((before, inner.value(p.ValueRef(place, name), type_, place, loop.span)))
        elif name in later:
            build.value(build.full(name, home), type_, "" if build.is_step(home) else home, loop.span)
    frame = Frame(inner, place, groups(inner, place, statements), split, statements, later & types.keys())
    for statement in statements:
        _statement(statement, frame)
    frame.arrive(set(frame.late))
    ops = tuple(op for op in frame.ops if not isinstance(op, Mark))
    outer.ops.append(p.RowLoop(place, start, stop, tuple(carried), ops))


def _assign(statement: m.Assign, frame: Frame) -> None:
    build, carried = frame.build, frame.build.carried
    if isinstance(statement.value, m.Call) and statement.value.op == "route":
        route(statement, statement.value, frame)
        return
    value = frame.split(statement.value, frame)
    share = scattered(value, statement.value.type, frame)
    node = complete(value, statement.value.type, frame) if share is None else share
    if statement.guard is not None:
        layer_scalar(build, statement.guard)
    if _renames(statement, node, frame):
        return
    outputs = []
    for name, type_ in zip(statement.names, statement.types, strict=True):
        full = frame.full(name)
        place = "" if name in carried or frame.place == build.place else frame.place
        if share is not None:
            columns = (
                build.buffers[share.ref].shape[-1]
                if isinstance(share, m.Read) and isinstance(share.ref, p.BufferRef)
                else 0
            )
            build.held(full, (columns,), build.dtype(type_), place, statement.span)
        outputs.append(build.value(full, type_, place, statement.span))
    late = frame.late.get(frame.value) if share is not None else None
    (frame.ops if late is None else late).append(p.Compute(tuple(outputs), node, statement.guard, statement.span))
    _save(statement.value, frame)


def _renames(statement: m.Assign, node: Node, frame: Frame) -> bool:
    """Whether a step's f32 value, such as the logits, is a product as it is: it needs no room of its own."""
    build = frame.build
    if isinstance(node, m.Call) and node.op == "f32":
        node = node.args[0]
    made = frame.view_of(node)
    if frame.place != build.place or len(statement.names) > 1 or statement.guard is not None or made is None:
        return False
    name, type_ = frame.full(statement.names[0]), statement.types[0]
    if type_.dtype != "f32" or build.buffers[made.buffer].dtype != "f32" or name in build.views:
        return False
    # The logits leave as a whole buffer, in which nothing may lie beside them.
    if name == p.LOGITS and any(v.buffer == made.buffer and v.start != made.start for v in build.views.values()):
        return False
    build.views[name] = made
    return True


def _entry(statement: m.Write, frame: Frame) -> None:
    """A cache's entry at the row's position."""
    state = frame.build.schedule.model.states[statement.state]
    if statement.guard is not None:
        raise cannot("write a cache in some layers only", statement.span)
    node = complete(frame.split(statement.value, frame), statement.value.type, frame)
    if len(state.type.shape) == 1:
        node = m.Call("view_one_head", (node,), (), (state.type,), statement.span)
    write_entries({p.ModelCacheRef(state.name): state}, node, statement.span, frame)


def _put(statement: m.Write, frame: Frame) -> None:
    """An element of a buffer that lasts through the layers."""
    if not isinstance(statement.index, m.Static):
        raise cannot("write an element that is not known by the layer", statement.span)
    node = complete(frame.split(statement.value, frame), statement.value.type, frame)
    for static in (statement.index, statement.guard):
        if static is not None:
            layer_scalar(frame.build, static)
    name = _bank(statement.state, frame)
    frame.ops.append(p.Put(name, statement.index, node, statement.guard, statement.span))


def _bank(state_: str, frame: Frame) -> p.ModelBufferRef:
    """A buffer of the model, `[elements, rows, n]`."""
    build, state = frame.build, frame.build.schedule.model.states[state_]
    name = p.ModelBufferRef(state_)
    if name not in build.buffers:
        count, *shape = build.shares.shape(state.type.shape)
        build.buffer(name, (count, build.rows, *shape), build.dtype(state.type), "", state.span)
    return name


def _save(value: Node, frame: Frame) -> None:
    """States that the statement's ops updated leave for HBM."""
    for node in walk(value):
        op = registry.find(node.op) if isinstance(node, m.Call) else None
        if isinstance(node, m.Call) and op is not None:
            for parameter, arg in zip(op.parameters, node.args, strict=True):
                if parameter in op.updates and isinstance(arg, m.StateRef):
                    frame.ops.append(p.StoreStart(p.StateRef(arg.name)))


def split(node: Node, frame: Frame) -> ShardedValue:
    """A node without products and the like, as the sum of what each core has a share of and what all have."""
    match node:
        case m.Local() if node.name in frame.scattered:
            return ShardedValue(None, None, axes(frame), own=node)
        case m.Call(op="matmul"):
            indexed = isinstance(node.args[0], m.Call) and node.args[0].op == "index"
            return expert_matmul(node, frame) if indexed and frame.parameter else matmul(node, frame)
        case m.Call(op="attend"):
            refuse_along(node, frame)
            return whole(attend(node, frame))
        case m.Call(op="attend_latent"):
            refuse_along(node, frame)
            return whole(attend_expanded(node, frame) if is_expanded(frame) else attend_latent(node, frame))
        case m.Call(op="attend_block"):
            refuse_along(node, frame)
            return whole(attend_block(node, frame))
        case m.Call(op="argmax"):
            return whole(argmax(node, frame))
        case m.Call(op="index") if isinstance(node.args[0], m.WeightRef) and is_table(frame.build, node.args[0].name):
            return look_up(node, frame)
        case m.Call(op="mix"):
            return whole(_mix(node, frame))
        case m.Call():
            return _call(node, frame)
        case m.Select():
            return _select(node, frame)
        case m.Let():
            bound = tuple((name, complete(split(value, frame), value.type, frame)) for name, value in node.bindings)
            inner = split(node.body, frame)
            return inner.through(lambda part: m.Let(bound, part, node.span))
        case m.Experts():
            return experts(node, frame)
        case m.Slice() | m.StateRef():
            raise cannot("read a buffer here", node.span)
        case m.Static() if node.depends:
            layer_scalar(frame.build, node)
    return whole(node)


def _call(node: m.Call, frame: Frame) -> ShardedValue:
    op = registry.find(node.op)
    assert op is not None
    if not registry.has_kernel(node.op):
        raise cannot(
            f"`{node.op}`, for which no package has a kernel",
            node.span,
            f"the entry-point group `{registry.PALLAS}` brings one",
        )
    if op.caches or node.op in ("route", "index"):
        raise cannot(f"`{node.op}`", node.span)
    if op.updates and frame.build.consecutive and node.op not in registry.table:
        raise cannot(f"`{node.op}` of a package, which updates states, for a span of tokens", node.span)
    if frame.build.shares.columns.normed(node, frame.place):
        count = frame.build.shares.instance.length(node.type.shape[-1])
        return ShardedValue(
            None, None, axes(frame), own=by_layer(norm_of_share(node, axes(frame), count, frame), frame)
        )
    if frame.build.shares.columns.of(node, frame.place):
        return ShardedValue(None, None, axes(frame), own=by_layer(node, frame))
    args = [whole(_state(a, frame)) if isinstance(a, m.StateRef) else split(a, frame) for a in node.args]
    through = linear(node, args) if any(not a.complete for a in args) else None
    if through is not None:
        return through
    done = evolve(node, args=tuple(complete(a, n.type, frame) for a, n in zip(args, node.args, strict=True)))
    return whole(by_layer(whole_along(done, frame), frame))


def _select(node: m.Select, frame: Frame) -> ShardedValue:
    if not node.condition.depends:
        return split(node.then if frame.build.shares.instance.value(node.condition) else node.other, frame)
    layer_scalar(frame.build, node.condition)
    then, other = (complete(split(each, frame), each.type, frame) for each in (node.then, node.other))
    return whole(evolve(node, then=then, other=other))


def _mix(node: m.Call, frame: Frame) -> Node:
    banks, x, folded = node.args
    base = banks.base if isinstance(banks, m.Slice) else banks
    if not isinstance(base, m.StateRef) or (
        isinstance(banks, m.Slice) and (banks.start.depends or frame.build.shares.instance.value(banks.start))
    ):
        raise cannot("mix values other than the first of a buffer", node.span)
    if isinstance(banks, m.Slice):
        layer_scalar(frame.build, banks.stop)
    for _, static in node.options:
        layer_scalar(frame.build, static)
    refuse_along(node, frame)
    _bank(base.name, frame)
    return evolve(node, args=(banks, *(complete(split(a, frame), a.type, frame) for a in (x, folded))))


def _state(ref: m.StateRef, frame: Frame) -> m.StateRef:
    """A state that an op updates; it has arrived before its first use."""
    build, name = frame.build, p.StateRef(ref.name)
    state = build.schedule.model.states[ref.name]
    if name not in build.copies:
        if state.kind != "state" or state.part != frame.place:
            raise cannot(f"this {state.kind}", ref.span)
        shape, dtype = build.shares.shape(state.type.shape), build.dtype(state.type)
        early = any(x.kind == "state" and x.what == frame.place for x in build.schedule.prefetches)
        slots, layers = 2 if early else 1, len(build.layers_of(frame.place))
        kept = build.rows + build.consecutive
        build.buffer(name, (slots, kept, *shape), dtype, "", state.span)
        build.views[name] = p.View(name, 0, shape)
        build.copies[name] = p.Copy(name, frame.place, name, name, slots)
        array = p.Array(name, (layers, build.rows, *shape), dtype, "state", frame.place)
        build.arrays[name], build.outputs[name] = array, array
    if name not in frame.loaded:
        frame.loaded.add(name)
        frame.ops.append(p.CopyWait(name))
    return ref
