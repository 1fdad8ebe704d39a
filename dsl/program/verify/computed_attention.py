"""What attention makes of queries, caches and the row's own entries."""

from __future__ import annotations

from typing import Any

from ...model import ir as m
from ...targets.lanes import LANES
from .. import ir as p
from ..ir.spec_access import Wrong
from .computed import Computed
from .computed_collectives import several
from .held import Held, complete, words
from .op_terms import unrounded
from .terms import Term


def attend(flow: Computed, op: p.Attend) -> None:
    """Over the caches that the ring brings, in the order of the op's operands, with the row's own entries."""
    ring, call = flow.program.caches[op.ring], op.call
    queries = [complete(flow.region(name, 0, None, name), "`attend`").term for name in op.queries]
    own = [flow.region(name, 0, None, name).term for name in op.entries]
    if len(own) != len(ring.caches):
        raise Wrong(f"`{op.ring}` has {len(ring.caches)} caches, and {len(own)} entries of the row")
    caches = [flow.terms.atom("cache", str(name), entry) for name, entry in zip(ring.caches, own, strict=True)]
    if call.op == "attend_latent" and ring.expanded is None:
        _latent(flow, op, queries, caches)
        return
    q = unrounded(flow.terms, queries[0])
    if call.op == "attend_latent":
        rest = [*_expanded(flow, ring, call, own), flow.terms.atom("weight", _name(call.args[3]))]
    elif (named := tuple(map(_name, call.args[1:]))) != _states(ring):
        raise Wrong(f"`{op.ring}` brings {', '.join(map(str, ring.caches))}; `attend` reads {', '.join(named)}")
    else:
        rest = caches
    found = flow.terms.atom(call.op, q, *rest, flow.options(call))
    flow.along(call)
    flow.hold(op.result, Held(found), flow.program.shares.length(call.type.shape[-1]))


def _states(ring: p.CacheRing) -> tuple[str, ...]:
    """The model's caches that a ring brings."""
    return tuple(cache.state for cache in ring.caches if isinstance(cache, p.ModelCacheRef))


def attend_block(flow: Computed, op: p.AttendBlock) -> None:
    """Over the caches that the ring brings, with the entries of an earlier phase, and the block's own."""
    ring, call, terms = flow.program.caches[op.ring], op.call, flow.terms
    if (named := tuple(map(_name, call.args[3:]))) != _states(ring) or len(op.earlier) != len(ring.caches):
        raise Wrong(f"`{op.ring}` brings {', '.join(map(str, ring.caches))}; `{call.op}` reads {', '.join(named)}")
    own = [complete(flow.region(name, 0, None, name), f"`{call.op}`").term for name in (*op.queries, *op.entries)]
    caches = []
    for cache, earlier in zip(ring.caches, op.earlier, strict=True):
        entries = flow.region(earlier, 0, None, earlier).term
        if entries != terms.atom("entries", str(cache)):
            raise Wrong(f"`{earlier}` does not hold the entries of `{cache}`")
        caches.append(terms.atom("cache", str(cache), entries))
    found = terms.atom(call.op, *(unrounded(terms, each) for each in own), *caches, flow.options(call))
    flow.along(call)
    flow.hold(op.result, Held(found), flow.program.shares.length(call.type.shape[-1]))


def _name(node: m.Node) -> str:
    assert isinstance(node, m.WeightRef | m.StateRef)
    return node.name


def _widths(flow: Computed, call: m.Call) -> tuple[int, int, int, int, int]:
    """Heads, the latent's rank, common channels, channels of a key, channels of a value."""
    q, latent, common, _ = call.args
    (heads, key), (_, value) = (flow.program.shares.shape(x.type.shape) for x in (q, call))
    rank, width = (flow.program.shares.length(x.type.shape[-1]) for x in (latent, common))
    return heads, rank, width, key, value


def _expanded(flow: Computed, ring: p.CacheRing, call: m.Call, own: list[Term]) -> list[Term]:
    """The latent caches of which a ring's keys and values were made, each entry as this row's is."""
    assert ring.expanded is not None
    terms, (heads, _, _, key, value), kept = flow.terms, _widths(flow, call), ring.expanded
    said = tuple(_name(arg) for arg in call.args[1:])
    if (kept.latent.state, kept.common.state, kept.weight, kept.key, kept.value) != (*said, key, value):
        raise Wrong(f"`{ring.name}` is made of other caches than `{call.op}` reads")
    latent, common = (flow.region(p.EntryRef(p.ModelCacheRef(name)), 0, None, name).term for name in said[:2])
    both = terms.atom("matmul", terms.atom("weight", said[2]), unrounded(terms, latent))
    made = terms.atom("view_keys_values", both, common, (("heads", float(heads)), ("value", float(value))))
    for i, (name, entry) in enumerate(zip(ring.caches, own, strict=True)):
        if unrounded(terms, entry) != terms.atom("item", made, (i,)):
            raise Wrong(f"the row's entry of `{name}` is not made of its latent")
    return [terms.atom("cache", name, entry) for name, entry in zip(said, (latent, common), strict=False)]


def _latent(flow: Computed, op: p.Attend, queries: list[Term], caches: list[Term]) -> None:
    """Queries that went through their heads' part of the weight, and the latents as they are."""
    ring, terms, (_, rank, width, key, value) = flow.program.caches[op.ring], flow.terms, _widths(flow, op.call)
    names = tuple(_name(arg) for arg in op.call.args[1:3])
    if _states(ring) != names:
        raise Wrong(f"`{op.ring}` brings {', '.join(map(str, ring.caches))}; `attend_latent` reads {', '.join(names)}")
    axes = tuple(sorted(several(flow, ring.axes)))
    inner, outer = (_of_all(flow, query, axes) for query in queries)
    last: Any = terms.made[unrounded(terms, outer)]
    if last[0] != "view_last" or last[2] != (("width", float(width)),):
        raise Wrong("the common channels of the queries are not their last ones")
    weight = terms.atom("weight", _name(op.call.args[3]))
    by_head = terms.atom("view_by_head", last[1], (("width", float(key - width)),))
    absorbed = terms.atom("absorb", weight, by_head)
    if unrounded(terms, inner) != terms.atom("view_by_row", absorbed, (("width", float(rank)),)):
        raise Wrong("the queries that meet the latents are not those whose last channels meet the common ones")
    found = terms.atom("latent", unrounded(terms, last[1]), *caches, weight, flow.options(op.call), (rank, value))
    if axes:
        found = terms.atom("heads of all", found, (axes,))
    flow.hold(op.result, Held(found), rank + (LANES if axes else 0))


def _of_all(flow: Computed, query: Term, axes: tuple[str, ...]) -> Term:
    """A query of this core's heads, of which those of all cores were gathered where positions are sharded."""
    if not axes:
        return query
    key: Any = flow.terms.made[query]
    if key[0] != "heads of all" or key[2] != (axes,):
        raise Wrong(f"queries of other heads than those over {words(axes)} meet the latents")
    return key[1]
