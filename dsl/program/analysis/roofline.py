"""What a pass keeps in HBM and reads from it, on the core that has most, and the time that this takes at least."""

from __future__ import annotations

from ...model import ir as m
from ...model.calls import operands_of
from ...model.expressions import walk
from ...model.facts import Facts
from ...model.instance import Instance
from ...model.ops import find
from ...model.shapes import Poly
from ...records import frozen
from ...schedule.ir import Pass
from ...schedule.shares import Shares
from .memory import Line
from .routing_stats import distinct, largest_group


@frozen
class Traffic:
    """One core, one pass; cached positions are counted up to the whole context."""

    of: Pass
    held: tuple[Line, ...]
    read: tuple[Line, ...]
    flops: float
    floor_seconds: float
    bound: str

    @property
    def read_bytes(self) -> int:
        """All that a step reads."""
        return sum(line.bytes for line in self.read)


def traffics(shares: Shares) -> tuple[Traffic, ...]:
    """The counts for each of a schedule's passes."""
    facts = shares.facts
    weights = shares.schedule.model.weights
    read = sum(shares.weight_bytes(weights[name]) * n for name, n in _weight_runs(shares, facts).items())
    flops = _flops(shares, facts)
    return tuple(_traffic(shares, each, read, flops * each.tokens) for each in shares.schedule.passes)


def _traffic(shares: Shares, of: Pass, weight_bytes: int, flops: float) -> Traffic:
    weights, experts = Line("weights", weight_bytes), _read_experts(shares, shares.facts, of.tokens)
    states, caches = _read_states(shares, of.sequences)
    read = tuple(line for line in (weights, experts, states, caches) if line.bytes)
    target = shares.schedule.target
    by_bytes = sum(x.bytes for x in read) / target.memory.hbm_rate.value
    by_flops = flops / target.compute.bf16_rate.value
    bound = "bytes" if by_bytes >= by_flops else "arithmetic"
    return Traffic(of, _held(shares, of.sequences), read, flops, max(by_bytes, by_flops), bound)


def _layers(instance: Instance, part: str | None) -> tuple[int | None, ...]:
    """The layers that keep a part's weights and states; what belongs to the model is kept once."""
    layers = instance.owner_layers(part)
    return (None,) if layers is None else layers


def _held(shares: Shares, rows: int) -> tuple[Line, ...]:
    model, instance = shares.schedule.model, shares.instance
    weights = sum(shares.weight_bytes(w) * len(_layers(instance, w.part)) for w in model.weights.values())
    kept = max(shares.schedule.spans) if shares.schedule.keep_rows else 1
    states = caches = 0
    for state in model.states.values():
        layers = _layers(instance, state.part)
        if state.kind == "state":
            states += shares.held_bytes(state) * len(layers) * rows * kept
        elif state.kind == "cache":
            caches += sum(shares.positions(state, layer) for layer in layers) * shares.held_bytes(state) * rows
    words = f"{rows} rows" + (f" x {kept} kept" if kept > 1 else "")
    context = f"{rows} rows x {shares.schedule.context} positions"
    lines = (Line("weights", weights), Line("states", states, words), Line("caches", caches, context))
    return tuple(line for line in lines if line.bytes)


def _weight_runs(shares: Shares, facts: Facts) -> dict[str, int]:
    """How many times all steps together read each weight; experts and look-ups are counted elsewhere."""
    runs: dict[str, int] = {}
    instance = shares.instance
    chosen = {name for names in facts.experts.values() for name in names}
    for step in instance.model.steps:
        times = {step or "step": 1}
        for parts in instance.layer_parts(step).values():
            for part in parts:
                times[part] = times.get(part, 0) + 1
        for place, count in times.items():
            names: set[str] = set()
            for statement in facts.bodies[place]:
                looked_up = {id(n.args[0]) for n in walk(statement.value) if isinstance(n, m.Call) and n.op == "index"}
                names |= {
                    n.name for n in walk(statement.value) if isinstance(n, m.WeightRef) and id(n) not in looked_up
                }
            for name in names - chosen:
                runs[name] = runs.get(name, 0) + count
    return runs


def _read_experts(shares: Shares, facts: Facts, rows: int) -> Line:
    weights = shares.schedule.model.weights
    routed, words = 0.0, ""
    for part, names in facts.experts.items():
        routes = next(n.routes.type for st in facts.bodies[part] for n in walk(st.value) if isinstance(n, m.Experts))
        count, top = (shares.instance.length(axis) for axis in routes.shape)
        held = min(shares.weight_shape(weights[name])[0] for name in names)
        groups = max(1, count // held)
        batch = round(distinct(count, top, rows))
        slowest = largest_group(count, groups, batch)
        one = sum(shares.weight_bytes(weights[name]) // shares.weight_shape(weights[name])[0] for name in names)
        layers = len(shares.instance.part_layers[part])
        routed += one * slowest * layers
        words = f"{slowest:.1f} of {batch} distinct experts in the fullest of {groups} groups x {layers} layers"
    return Line("experts", round(routed), words)


def _read_states(shares: Shares, rows: int) -> tuple[Line, Line]:
    states = caches = 0
    for state in shares.schedule.model.states.values():
        layers = _layers(shares.instance, state.part)
        if state.kind == "state":
            states += shares.state_bytes(state) * len(layers) * rows
        elif state.kind == "cache":
            caches += sum(shares.positions(state, layer) for layer in layers) * shares.state_bytes(state) * rows
    return (
        Line("states", states, f"{rows} rows"),
        Line("caches", caches, f"{rows} rows at position {shares.schedule.context}"),
    )


def _flops(shares: Shares, facts: Facts) -> float:
    """Operations for a token on one core; attention over the cache counts two a cached number and query head."""
    total = 0.0
    instance = shares.instance
    for step in instance.model.steps:
        times: dict[str, tuple[int, ...]] = {}
        for layer, parts in instance.layer_parts(step).items():
            for part in parts:
                times[part] = (*times.get(part, ()), layer)
        for place in (step or "step", *times):
            layers = times.get(place, (0,))
            for statement in facts.bodies[place]:
                for node, factor in _weighted(statement.value, 1.0, shares):
                    total += factor * _cost(node, shares, layers)
    return total


def _weighted(node: m.Node, factor: float, shares: Shares) -> list[tuple[m.Call, float]]:
    """Every op with how often it runs: an experts' body once a route, on the cores that share them out."""
    found = []
    for inner in walk(node):
        if isinstance(inner, m.Experts):
            count, held = (length(inner.routes.type.shape[0]) for length in (shares.instance.length, shares.length))
            top = shares.instance.length(inner.routes.type.shape[1])
            found += [(n, factor * (top * held / count - 1)) for n in walk(inner.body) if isinstance(n, m.Call)]
        if isinstance(inner, m.Call):
            found.append((inner, factor))
    return found


def _cost(call: m.Call, shares: Shares, layers: tuple[int, ...]) -> float:
    op = find(call.op)
    assert op is not None
    once = op.flops(operands_of(call, op))
    total = shares.length(once) * len(layers) if once != Poly() else 0
    if op.caches:
        heads, width = shares.shape(call.args[0].type.shape)
        # Where positions are sharded, a core attends with the heads of all that have others.
        heads *= shares.schedule.ways(shares.schedule.over_positions)
        states = [shares.schedule.model.states[a.name] for a in call.args if isinstance(a, m.StateRef)]
        total += (
            sum(shares.positions(states[0], layer) for layer in layers)
            * heads
            * (width + shares.length(call.type.shape[-1]))
            * 2
        )
    return float(total)
