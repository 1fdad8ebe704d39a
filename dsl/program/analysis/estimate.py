"""A bill where there is no Program: what a schedule's statements ask for, padded as the compiler charges it."""

from __future__ import annotations

from ...model import ir as m
from ...model.facts import Facts
from ...schedule.ir import Prefetch, Reduce
from ...schedule.shares import Shares
from ...source import Span
from ...targets.targets import BYTES, padded_bytes
from ..layout.tiling import TILE_BYTES
from ..lower.attention import TILE_SLOTS, TILE_TOKENS
from .memory import Bill, Line, mib
from .roofline import Traffic


def estimate(shares: Shares, counts: Traffic) -> Bill:
    """The bill of a pass; HBM is what its `counts` hold."""
    schedule, tokens, rows = shares.schedule, counts.of.tokens, counts.of.sequences
    facts = shares.facts
    lines: list[Line] = []

    def add(name: str, size: int, why: str, span: Span | None) -> None:
        if size:
            lines.append(Line(name, size, why, "", span))

    for stream in schedule.streams:
        add(
            f"stream {stream.name}",
            stream.slots * stream.slot,
            f"{stream.slots} slots x {mib(stream.slot)}",
            stream.slots_span,
        )
    for fetch in schedule.fetches:
        one = _expert_bytes(shares, facts, fetch.part)
        add(f"fetch {fetch.part}.experts", fetch.slots * one, f"{fetch.slots} slots x {mib(one)}", fetch.span)
    add("weights", _unstreamed(shares, facts), "two tiles of what no stream carries", None)

    def span_of(prefetch: Prefetch | None) -> Span | None:
        return None if prefetch is None else prefetch.span

    early = {(p.kind, p.what): p for p in schedule.prefetches}
    for part in schedule.model.parts:
        prefetch = early.get(("cache", part))
        slots = (prefetch and prefetch.slots) or TILE_SLOTS
        tile = (prefetch and prefetch.tile) or TILE_TOKENS
        caches = [s for s in schedule.model.states.values() if s.part == part and s.kind == "cache"]
        kinds = [(s, shares.instance.dtype(s.type)) for s in caches]
        one = sum(padded_bytes((tile, shares.state_bytes(s) // BYTES[kind]), kind) for s, kind in kinds)
        add(f"cache tiles of {part}", slots * one, f"{slots} x {tile} positions", span_of(prefetch))
        prefetch = early.get(("state", part))
        one, sets = _state_bytes(shares, part), 1 if prefetch is None else 2
        add(f"states of {part}", sets * rows * one, f"{sets} x {rows} rows x {mib(one)}", span_of(prefetch))
    prefetch = early.get(("vectors", "vectors"))
    layers = 1 if prefetch is None else 2
    add("vectors", layers * _vectors(shares), f"{layers} layers", span_of(prefetch))
    add("values", _values(shares, facts, tokens), f"{tokens} rows of the largest part and what is carried", None)
    add("collectives", sum(_message(r, shares, facts, tokens) for r in schedule.reduces), "two sets of slots", None)
    lines.sort(key=lambda line: -line.bytes)
    target = schedule.target
    has = target.memory
    return Bill(
        tokens,
        tuple(lines),
        (),
        (),
        (),
        counts.held,
        int(has.vmem.value),
        int(has.smem.value),
        int(has.hbm.value),
        estimated=True,
        consecutive=counts.of.consecutive,
    )


def _expert_bytes(shares: Shares, facts: Facts, part: str) -> int:
    weights = [shares.schedule.model.weights[name] for name in facts.experts[part]]
    return sum(shares.weight_bytes(w) // shares.weight_shape(w)[0] for w in weights)


def _unstreamed(shares: Shares, facts: Facts) -> int:
    carried = {w for stream in shares.schedule.streams for _, groups in stream.lines for g in groups for w in g.weights}
    fetched = {w for f in shares.schedule.fetches for w in facts.experts[f.part]}
    rest = [shares.schedule.model.weights[p.weight] for p in facts.products if p.weight not in carried | fetched]
    return 2 * max((min(shares.weight_bytes(w), TILE_BYTES) for w in rest), default=0)


def _state_bytes(shares: Shares, part: str) -> int:
    states = [s for s in shares.schedule.model.states.values() if s.part == part and s.kind == "state"]
    return sum(padded_bytes(shares.shape(s.type.shape), shares.instance.dtype(s.type)) for s in states)


def _vectors(shares: Shares) -> int:
    sizes: dict[str | None, int] = {}
    for w in shares.schedule.model.weights.values():
        if len(w.shape) == 1 and w.part is not None:
            sizes[w.part] = sizes.get(w.part, 0) + padded_bytes((1, *shares.weight_shape(w)), "f32")
    per_layer = [
        sum(sizes.get(p, 0) for p in parts)
        for step in shares.instance.model.steps
        for parts in shares.instance.layer_parts(step).values()
    ]
    return max(per_layer, default=0)


def _values(shares: Shares, facts: Facts, tokens: int) -> int:
    """Named values of the largest part, in f32, and buffers; vectors lie as rows, matrices one after the other."""

    def charged(shape: tuple[int, ...]) -> int:
        return padded_bytes((tokens, *shape), "f32")

    largest = 0
    for body in facts.bodies.values():
        types = [t for st in body if isinstance(st, m.Assign) for t in st.types if t.dtype != "routes"]
        largest = max(largest, sum(charged(shares.shape(t.shape)) for t in types))
    buffers = sum(
        charged(shares.shape(s.type.shape)) for s in shares.schedule.model.states.values() if s.kind == "buffer"
    )
    return largest + buffers


def _message(reduce: Reduce, shares: Shares, facts: Facts, tokens: int) -> int:
    """Receive slots of one collective, two sets of them; a direct exchange has a slot for every core."""
    products = [p for p in facts.products if reduce.value in p.values or reduce.value == p.weight]
    if not products:
        return 0
    width = max(shares.instance.length(shares.schedule.model.weights[p.weight].shape[-2]) for p in products)
    return 2 * reduce.by.slots(shares.schedule.cores) * padded_bytes((tokens, width), reduce.wire)
