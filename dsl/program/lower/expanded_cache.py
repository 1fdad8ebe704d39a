"""A latent cache kept expanded: each token's keys and values of every head, made once and attended to as any others."""

from __future__ import annotations

from ...model import ir as m
from ...model.ir import Node, Type
from .. import ir as p
from ..layout.lanes import whole_lanes
from .attention import array_of, attended, of_model, ring_of_tiles, view, write_entries
from .build import product
from .frame import Frame
from .matmul import loops
from .reduce import complete

EXPANDED = "expanded"


def is_expanded(frame: Frame) -> bool:
    """Whether the schedule says so of this part's cache."""
    return any(form.part == frame.place and form.value == EXPANDED for form in frame.build.schedule.forms)


def attend_expanded(call: m.Call, frame: Frame) -> Node:
    """The row's latent goes through `kv_b` and leaves as an entry; earlier tokens' have done so before.

    Latents stay as well, because prompts are read with them.
    """
    build, (q, latent, common, kv_b) = frame.build, call.args
    assert isinstance(latent, m.StateRef)
    assert isinstance(common, m.StateRef)
    assert isinstance(kv_b, m.WeightRef)
    part = frame.place
    query = complete(frame.split(q, frame), q.type, frame)
    name = frame.fresh("attend")
    shape = whole_lanes(build.shares.shape(q.type.shape))
    held = frame.compute(p.PartRef(p.Role.QUERY, name), shape, build.dtype(Type("bf16")), query)
    made = product(build, part, (kv_b.name,), None, call.span)
    frame.ops.append(p.Compute((made.operand,), _entry(latent, frame), None, latent.span))
    frame.ops += loops(made)
    both = frame.read(build.product_of(kv_b.name, frame.place), Type("f32", call.type.shape), call)
    (heads, key), (_, value) = (build.shares.shape(x.type.shape) for x in (q, call))
    kept: dict[p.CacheRef, m.State] = {
        p.ExpandedRef(part, what): m.State(what, part, "cache", Type(latent.type.dtype, x.type.shape), None, call.span)
        for what, x in (("keys", q), ("values", call))
    }
    entries = view("keys_values", (both, _entry(common, frame)), call, heads=heads, value=value)
    write_entries(kept, entries, call.span, frame)
    expanded = p.Expanded(p.ModelCacheRef(latent.name), p.ModelCacheRef(common.name), kv_b.name, key, value)
    ring, early = ring_of_tiles(kept, call, frame, expanded)
    for cache, state in of_model((latent, common), build).items():
        array_of(build, cache, state, build.caches[ring], "latents")
    return attended(call, name, ring, early, (held,), build.shares.shape(call.type.shape), frame)


def _entry(ref: m.StateRef, frame: Frame) -> Node:
    """The row's own entry of a cache of vectors, as it was rounded, `[B, n]`."""
    name = p.EntryRef(p.ModelCacheRef(ref.name))
    frame.build.views.setdefault(name, p.View(name, 0, (1, *frame.build.shares.shape(ref.type.shape))))
    return view("of_one_head", (frame.read(name, ref.type, ref),), ref)
