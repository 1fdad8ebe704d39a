"""Whether a schedule's shares work at given sizes."""

from __future__ import annotations

from collections import Counter

from ..diagnostics import Label, Sink
from ..model import ir as m
from ..model.check_instance import shared_heads
from ..model.facts import Facts
from ..model.instance import Instance
from ..model.shapes import Poly, show
from ..source import Span
from .ir import Schedule, Shard, Split


def check_shares(schedule: Schedule, instance: Instance, sink: Sink) -> bool:
    """Whether a schedule's shares work at these sizes."""
    before = len(sink.diagnostics)
    facts = instance.facts
    for shard in schedule.shards.values():
        ways = schedule.ways(shard.axes)
        if shard.size == "position":
            _check_positions(shard, schedule, facts, sink)
            continue
        length = instance.values[shard.size]
        assert isinstance(length, int)
        if shard.repeat and ways % length and length % ways:
            sink.report(
                "E213",
                f"`{shard.size}` = {length} cannot be repeated evenly on {ways} cores",
                shard.span,
                helps=(f"leave out `(repeat)`: the share is padded to {-(-length // ways)}",),
            )
        elif shard.repeat and length >= ways:
            sink.report(
                "E207",
                f"`{shard.size}` = {length} is enough for {ways} cores: nothing repeats",
                shard.span,
                helps=("leave out `(repeat)`",),
            )
        elif shard.size in _routed(facts) and length % ways:
            sink.report("E213", f"{length} experts do not fall into {ways} equal groups", shard.span)
    reported: set[Span] = set()
    stored: dict[str, m.Weight | m.State] = {**schedule.model.weights, **schedule.model.states}
    for copies in stored.values():
        if _cut_in_ranges(copies, schedule, facts, sink):
            _cut_once(copies, schedule, facts, reported, sink)
    for call, many, few in shared_heads(facts):
        _pair_shares(call, many, few, schedule, instance, sink)
    return len(sink.diagnostics) == before


def _check_positions(shard: Shard, schedule: Schedule, facts: Facts, sink: Sink) -> None:
    """Cores that share out positions have heads of their own, for which all of them attend."""
    expanded = {form.part: form for form in schedule.forms if form.value == "expanded"}
    for part in schedule.model.parts:
        for call in facts.latent_attention(part):
            axis = call.args[0].type.shape[0]
            heads = {over for name in _sharded(axis, schedule) for over in schedule.shards[name].axes}
            missing = [over for over in schedule.over_positions if over not in heads]
            if part in expanded:
                sink.report(
                    "E213",
                    f"`{part}.cache = expanded` keeps all positions of a core's own heads",
                    expanded[part].span,
                    others=(Label(shard.span, "positions are sharded"),),
                )
            elif missing:
                size = show((axis,)).strip("[]")
                sink.report(
                    "E213",
                    f"positions are sharded over `{missing[0]}`, but `{size}` is not",
                    shard.span,
                    others=(Label(call.span, "each core would attend for the same heads"),),
                    helps=(f"write `shard {', '.join(shard.axes)} : {size}`",),
                )


def _cut_in_ranges(stored: m.Weight | m.State, schedule: Schedule, facts: Facts, sink: Sink) -> bool:
    """A share of an axis is a range of it: one size is shared out, and it is a factor of the whole axis."""
    shape = stored.shape if isinstance(stored, m.Weight) else stored.type.shape
    for axis in shape:
        names = sorted(set(_of(stored, axis, schedule, facts)))
        spans = [schedule.shards[name].span for name in names]
        described = f"`{stored.name}` {show(shape)}"
        if len(names) > 1:
            sink.report(
                "E213",
                f"two sizes of one axis of {described} are sharded, `{names[0]}` and `{names[1]}`",
                spans[1],
                others=(Label(spans[0], "here"), Label(stored.span, "declared here")),
            )
            return False
        if names and any(names[0] not in {atom.name for atom in atoms} for atoms, _ in axis.terms):
            sink.report(
                "E213",
                f"`{names[0]}` is not a factor of the axis `{axis}` of {described}",
                spans[0],
                others=(Label(stored.span, "declared here"),),
                notes=("a core's share must be one range of it",),
            )
            return False
    return True


def _of(stored: m.Weight | m.State, axis: Poly, schedule: Schedule, facts: Facts) -> list[str]:
    """The sharded sizes of an axis: those of experts share out their own matrices only."""
    own = {name for names in facts.experts.values() for name in names}
    routed = set() if stored.name in own else _routed(facts)
    return [name for name in _sharded(axis, schedule) if name not in routed]


def _cut_once(stored: m.Weight | m.State, schedule: Schedule, facts: Facts, reported: set[Span], sink: Sink) -> None:
    """No mesh axis cuts two axes of a weight or state: a core's share of one would need all of the other.

    A split takes the place of what its rows are sharded over, and must go further.
    """
    shape = stored.shape if isinstance(stored, m.Weight) else stored.type.shape
    cuts: list[Shard | Split] = [schedule.shards[x] for axis in shape for x in _of(stored, axis, schedule, facts)]
    if isinstance(stored, m.State) and stored.kind == "cache" and "position" in schedule.shards:
        cuts.append(schedule.shards["position"])
    split = schedule.splits.get(stored.name)
    if split is not None:
        rows = [schedule.shards[name] for name in _of(stored, shape[0], schedule, facts)]
        if rows and {axis for by in rows for axis in by.axes} >= set(split.axes):
            sink.report(
                "E207",
                f"the rows of `{stored.name}` {show(shape)} are sharded over "
                f"{', '.join(f'`{a}`' for a in split.axes)} already",
                split.span,
                others=(Label(rows[0].span, "here"),),
            )
            return
        cuts = [*cuts[len(rows) :], split]
    cut: dict[str, Span] = {}
    for by in cuts:
        for axis in by.axes:
            if axis in cut:
                if not reported & {by.span, cut[axis]}:  # one cause, one error
                    sink.report(
                        "E213",
                        f"`{axis}` shards `{stored.name}` {show(shape)} twice",
                        by.span,
                        others=(Label(cut[axis], "cut here"), Label(stored.span, "declared here")),
                    )
                reported |= {by.span, cut[axis]}
                return
            cut[axis] = by.span


def _sharded(axis: Poly, schedule: Schedule) -> list[str]:
    """The sharded sizes of an axis, each as often as the term with most of them has it."""
    most: Counter[str] = Counter()
    for atoms, _ in axis.terms:
        most |= Counter(atom.name for atom in atoms if atom.expr is None and atom.name in schedule.shards)
    return sorted(most.elements())


def _routed(facts: Facts) -> set[str]:
    return {str(facts.model.weights[w].shape[0]) for names in facts.experts.values() for w in names}


def _pair_shares(call: m.Call, many: int, few: int, schedule: Schedule, instance: Instance, sink: Sink) -> None:
    a, b = (str(call.args[i].type.shape[0]) for i in (many, few))
    shard = schedule.shards.get(b)
    if a not in schedule.shards or a == b:
        if shard is not None and a != b:
            sink.report("E213", f"`{b}` is sharded but `{a}`, which shares its heads, is not", shard.span)
        return
    heads, shared = (instance.length(call.args[i].type.shape[0]) for i in (many, few))
    ways, each = schedule.ways(schedule.shards[a].axes), heads // shared
    if shard is None:
        if shared > 1:
            axes = ", ".join(schedule.shards[a].axes)
            sink.report(
                "E213",
                f"`{a}` is sharded but `{b}`, whose {shared} heads it shares, is not",
                schedule.shards[a].span,
                others=(Label(call.span, "they meet here"),),
                helps=(f"write `shard {axes} : {b}{' (repeat)' if ways > shared else ''}`",),
            )
        return
    if set(schedule.shards[a].axes) != set(shard.axes):
        sink.report(
            "E213",
            f"`{a}` and `{b}` share heads and must be sharded alike",
            shard.span,
            others=(Label(schedule.shards[a].span, "here"),),
        )
        return
    for core in range(ways):
        mine = {h // each for h in _share(core, ways, heads, schedule.shards[a].repeat)}
        theirs = set(_share(core, ways, shared, shard.repeat))
        if not mine <= theirs:
            helps = (f"write `{b} (repeat)`",) if not shard.repeat and ways % shared == 0 else ()
            message = f"core {core} has heads of `{a}` that read {sorted(mine)} of `{b}`, but holds {sorted(theirs)}"
            others = (Label(schedule.shards[a].span, f"{a} = {heads}"),)
            sink.report("E213", message, shard.span, others=others, helps=helps)
            return


def _share(core: int, ways: int, length: int, repeat: bool) -> range:
    if repeat and length < ways:
        at = core // (ways // length)
        return range(at, at + 1)
    each = -(-length // ways)
    return range(min(core * each, length), min((core + 1) * each, length))
