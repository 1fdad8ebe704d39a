"""Attention over caches: the row's own token first, then the tiles of what earlier tokens left."""

from __future__ import annotations

from collections.abc import Sequence

from ...diagnostics import Diagnostic, Label, MksError
from ...model import ir as m
from ...model.ir import Node, Type
from ...schedule.blocks import BLOCK, longest_tile, room
from ...schedule.ir import Prefetch
from ...source import Span
from ...targets.lanes import LANES
from .. import ir as p
from ..layout.lanes import whole_lanes
from . import context_parallel
from .build import Build, cannot, head_product, layer_scalar
from .frame import Frame
from .matmul import loops
from .partials import number
from .reduce import complete

# So many positions are attended to at once; tiles of as many, or of several times as many, change no bit.
ATTENDED = BLOCK
# Caches that no schedule line prefetches go through so many slots of so many positions.
TILE_TOKENS, TILE_SLOTS = ATTENDED, 2
MOST_TILES = 1 << 16  # of a row: what a list of tiles tells apart


def attend(call: m.Call, frame: Frame) -> Node:
    """Grouped queries over keys and values."""
    build, (q, *caches) = frame.build, call.args
    if build.schedule.over_positions:
        raise cannot(
            "share out the positions of keys and values of several heads",
            call.span,
            "only a latent cache is shared out by positions",
        )
    kept = of_model(caches, build)
    query = complete(frame.split(q, frame), q.type, frame)
    name = frame.fresh("attend")
    ring, early = ring_of_tiles(kept, call, frame)
    shape = whole_lanes(build.shares.shape(q.type.shape))
    held = frame.compute(p.PartRef(p.Role.QUERY, name), shape, build.dtype(Type("bf16")), query)
    return attended(call, name, ring, early, (held,), build.shares.shape(call.type.shape), frame)


def attend_latent(call: m.Call, frame: Frame) -> Node:
    """A head's query goes through its part of `kv_b` once, and then meets the latents as they are; so does the result.

    Keys are the latent and the common channels side by side, values the latent.
    """
    build, (q, latent, common, kv_b) = frame.build, call.args
    assert isinstance(latent, m.StateRef)
    assert isinstance(common, m.StateRef)
    assert isinstance(kv_b, m.WeightRef)
    (rank,), (width,) = (build.shares.shape(c.type.shape) for c in (latent, common))
    heads, both = build.shares.shape(q.type.shape)
    value = build.shares.shape(call.type.shape)[1]
    query = complete(frame.split(q, frame), q.type, frame)
    name = frame.fresh("attend")
    whole = frame.compute(p.PartRef(p.Role.QUERY, name), (heads, both), build.dtype(Type("bf16")), query)
    absorb = head_product(build, frame.place, kv_b.name, "absorb", heads, rank, both - width, call.span)
    local = frame.read(whole, q.type, q)
    frame.ops.append(p.Compute((absorb.operand,), _part("by_head", local, both - width, call), None, q.span))
    frame.ops += loops(absorb)
    ring, early = ring_of_tiles(of_model((latent, common), build), call, frame)
    working, apart = build.dtype(Type("bf16")), context_parallel.heads_of_all(build, heads)
    inner, outer = (
        build.buffer(
            p.PartRef(role, name), (build.rows, *whole_lanes((apart, channels))), dtype, frame.place, call.span
        )
        for role, channels, dtype in ((p.Role.ABSORBED, rank, "f32"), (p.Role.COMMON, width, working))
    )
    absorbed = _part("by_row", frame.read(absorb.result, q.type, q), rank, call)
    common = _part("last", local, width, call)
    if build.schedule.over_positions:
        context_parallel.gather(name, (absorbed, common), (inner, outer), heads, call, frame)
        of_core = attended(call, name, ring, early, (inner, outer), (apart, rank + LANES), frame)
        found = context_parallel.merge(name, of_core, (heads, rank), call, frame)
    else:
        frame.ops.append(p.Compute((inner,), absorbed, None, q.span))
        frame.ops.append(p.Compute((outer,), common, None, q.span))
        found = attended(call, name, ring, early, (inner, outer), (heads, rank), frame)
    expand = head_product(build, frame.place, kv_b.name, "expand", heads, value, rank, call.span)
    frame.ops.append(p.Compute((expand.operand,), _part("by_head", found, rank, call), None, call.span))
    frame.ops += loops(expand)
    result = frame.compute(
        p.PartRef(p.Role.EXPANDED, name),
        (heads, value),
        "f32",
        _part("by_row", frame.read(expand.result, call.type, call), value, call),
    )
    return frame.read(result, call.type, call)


def of_model(caches: Sequence[Node], build: Build) -> dict[p.CacheRef, m.State]:
    """The model's caches among a call's operands."""
    states = build.schedule.model.states
    return {p.ModelCacheRef(c.name): states[c.name] for c in caches if isinstance(c, m.StateRef)}


def _part(what: str, x: Node, width: int, call: m.Call) -> Node:
    """The `last` channels, or the first ones with heads or rows in front."""
    return view(what, (x,), call, width=width)


def view(what: str, args: tuple[Node, ...], like: m.Call | m.StateRef, **options: int) -> Node:
    """A rearrangement that the model has no op for."""
    said = tuple((name, number(value, like)) for name, value in options.items())
    return m.Call(f"view_{what}", args, said, (like.type,), like.span)


def ring_of_tiles(
    caches: dict[p.CacheRef, m.State], call: m.Call, frame: Frame, expanded: p.Expanded | None = None
) -> tuple[p.CacheRingRef, Prefetch | None]:
    """The caches that a call attends to, and the slots that their tiles go through; the line that prefetches them."""
    build, part = frame.build, frame.place
    said = next((x for x in build.schedule.prefetches if x.kind == "cache" and x.what == part), None)
    window = window_of(caches, call, frame)
    if len(caches) != 2:
        raise cannot("attend to one cache as keys and as values", call.span, "write each entry to a cache of its own")
    ring = p.CacheRingRef(part)
    if ring in build.caches:
        raise cannot("attend twice in one part", call.span)
    over, context = build.schedule.over_positions, build.schedule.context
    if window is not None:
        # Those that a block's rejected rows overwrite are still seen by the next one.
        context = min(context, -(-(window + build.rows - 1) // BLOCK) * BLOCK)
    own = room(context, build.schedule.ways(over)) if over else context
    tile = min((said and said.tile) or TILE_TOKENS, longest_tile(context, build.schedule.ways(over)))
    slots = (said and said.slots) or TILE_SLOTS
    buffers = tuple(p.PartRef(p.Role.TILES, cache) for cache in caches)
    made = p.CacheRing(ring, part, tuple(caches), buffers, tile, slots, own, over, expanded, window)
    for (cache, state), buffer in zip(caches.items(), buffers, strict=True):
        _, _, heads, _, width = array_of(build, cache, state, made, "cache").shape
        build.buffer(buffer, (slots, heads, tile, width), build.dtype(state.type), "", state.span)
    _check_tiles(made, build, said.span if said is not None else call.span)
    build.caches[ring] = made
    return ring, said


def window_of(caches: dict[p.CacheRef, m.State], call: m.Call, frame: Frame) -> int | None:
    """How many earlier positions a block sees, the same for all of a part's caches and layers; `None` for all."""
    build = frame.build
    found = {
        None
        if state.last is None
        else tuple(build.shares.instance.number(state.last, layer) for layer in build.layers_of(frame.place))
        for state in caches.values()
    }
    if found == {None}:
        return None
    (lasts,) = found if len(found) == 1 else (None,)
    if len(caches) != 2 or lasts is None or len(set(lasts)) != 1 or call.op != "attend_block":
        raise cannot("attend to a window of the cache", call.span)
    return int(lasts[0])


def _check_tiles(ring: p.CacheRing, build: Build, span: Span) -> None:
    """A list of tiles has a number of so many bits for each."""
    if ring.tiles <= MOST_TILES:
        return
    schedule = build.schedule
    most = MOST_TILES * ring.tile * max(1, schedule.ways(ring.axes))
    longer = ring.tile * -(-ring.tiles // MOST_TILES)
    raise MksError(
        [
            Diagnostic(
                "E218",
                f"`{schedule.name}` has {ring.tiles} tiles of {ring.tile} positions in a context of "
                f"{schedule.context}; a list of tiles counts {MOST_TILES}",
                Label(span),
                helps=(f"write `tile = {longer} tokens`, or a context of {most} at most",),
            )
        ]
    )


def array_of(build: Build, cache: p.CacheRef, state: m.State, ring: p.CacheRing, kind: str) -> p.Array:
    """A part's cache in HBM, `[layers, rows, heads, positions, width]`, of whole tiles."""
    heads, width = entry_shape(build, state)
    rows = 1 if build.consecutive else build.rows
    entries = (len(build.layers_of(ring.part)), rows, heads, ring.tiles * ring.tile, width)
    build.arrays[cache] = p.Array(cache, entries, build.dtype(state.type), kind, ring.part)
    return build.arrays[cache]


def entry_shape(build: Build, state: m.State) -> tuple[int, int]:
    """Heads and width of a cache's entry; XLA would lay out less than whole lanes in another order."""
    shape = whole_lanes(build.shares.shape(state.type.shape))
    return (shape[0], shape[1]) if len(shape) == 2 else (1, shape[0])


def write_entries(caches: dict[p.CacheRef, m.State], node: Node, span: Span, frame: Frame) -> None:
    """A value's entries in caches at the row's position: buffers of their own, which leave for outputs of the call."""
    build, layers = frame.build, len(frame.build.layers_of(frame.place))
    if any(state.part != frame.place for state in caches.values()):
        _keep_entries(caches, node, span, frame)
        return
    names = tuple(map(p.EntryRef, caches))
    for name, state in zip(names, caches.values(), strict=True):
        shape, dtype = entry_shape(build, state), build.dtype(state.type)
        build.buffer(name, (2, build.rows, *shape), dtype, "", span)
        build.copies[name] = p.Copy(name, frame.place, name, name, 2)
        build.outputs[name] = p.Array(name, (layers, build.rows, *shape), dtype, "entry", frame.place)
    frame.ops += [p.StoreWait(name, ahead=False) for name in names]
    frame.ops += [p.Compute(names, node, None, span), *map(p.StoreStart, names)]


def _keep_entries(caches: dict[p.CacheRef, m.State], node: Node, span: Span, frame: Frame) -> None:
    """Entries that another part reads: each layer's stay where they are until the end of the call."""
    build, layers = frame.build, len(frame.build.layers_of(frame.place))
    ((cache, state),) = caches.items()
    name, shape, dtype = p.EntryRef(cache), entry_shape(build, state), build.dtype(state.type)
    if name in build.outputs:
        raise cannot("write a cache in two parts", span)
    build.buffer(name, (layers, build.rows, *shape), dtype, "", span)
    build.outputs[name] = p.Array(name, (layers, build.rows, *shape), dtype, "entry", frame.place)
    frame.ops.append(p.Keep(name, node, span))


def attended(
    call: m.Call,
    name: p.TempRef,
    ring: p.CacheRingRef,
    early: Prefetch | None,
    queries: tuple[p.BufferRef, ...],
    shape: tuple[int, ...],
    frame: Frame,
) -> Node:
    """The tiles attended to, in the order of the caches; `queries` as in `Attend`, `shape` that of the result."""
    build, cache = frame.build, frame.build.caches[ring]
    for _, static in call.options:
        layer_scalar(build, static)
    result = build.buffer(name, (build.rows, *whole_lanes(shape)), "f32", frame.place, call.span)
    build.views[result] = p.View(result, 0, shape)
    if early is None:
        frame.ops.append(p.StartTiles(ring))
    entries = tuple(map(p.EntryRef, cache.caches))
    frame.ops.append(p.Attend(ring, call, queries, entries, result))
    return frame.read(result, call.type, call)
