"""A schedule's syntax to the Schedule: the machine, the shares, then what moves."""

from __future__ import annotations

from math import isqrt, prod

from ..diagnostics import Label, Sink, did_you_mean
from ..model import ir as m
from ..model.facts import Facts
from ..source import Span
from ..targets import targets
from ..targets.target import Target
from ..text import syntax as s
from . import movement
from .blocks import STEP, longest_tile
from .context import Draft
from .ir import Schedule, Shard, Split

LARGEST_ROWS = 8


def resolve_schedule(declared: s.Schedule, model: m.Model, sink: Sink) -> Schedule | None:
    """The Schedule, or `None` where its machine is unknown; what is wrong goes to `sink`."""
    before = len(sink.diagnostics)
    draft = Draft(sink, model, Facts(model))
    target, topology = _machine(declared, draft)
    settings = {
        item.keyword: item
        for item in declared.items
        if isinstance(item, s.Setting) and draft.once(item.keyword, item.span)
    }
    rows = _numbers(settings.get("rows"), draft, LARGEST_ROWS) or (1,)
    spans, keep = _spans(settings.get("span"), draft)
    context = _context(settings.get("context"), declared, draft)
    if max(spans) > context and "span" in settings and "context" in settings:
        draft.sink.report(
            "E205",
            f"a span of {max(spans)} tokens is longer than the context of {context} tokens",
            settings["span"].span,
            others=(Label(settings["context"].span, "the context"),),
        )
    _mesh(declared, target, topology, draft)
    for item in declared.items:
        if isinstance(item, s.Shard):
            _shard(item, draft)
        elif isinstance(item, s.Split):
            _split(item, draft)
    moved = movement.movement(declared, draft)
    _unused_axes(draft)
    for prefetch in moved.prefetches:
        if "context" in settings and prefetch.tile is not None:
            _tile(prefetch.tile, context, prefetch.span, draft)
    if target is None or any(d.severity == "error" for d in sink.diagnostics[before:]):
        return None
    return Schedule(
        declared.name.text,
        model,
        target,
        topology,
        rows,
        spans,
        keep,
        context,
        tuple(draft.mesh.items()),
        draft.shards,
        draft.splits,
        moved.streams,
        moved.fetches,
        moved.prefetches,
        moved.gathers,
        moved.reduces,
        moved.overlaps,
        moved.forms,
        moved.stores,
        declared.name.span,
    )


def _tile(tile: int, context: int, span: Span, draft: Draft) -> None:
    """A tile is whole steps of positions, no more of them than a core has of a sequence."""
    shard = draft.shards.get("position")
    ways = prod(draft.mesh[axis] for axis in shard.axes) if shard is not None else 1
    longest = longest_tile(context, ways)
    described = f"a tile of {tile} token{'s' * (tile > 1)}"
    if tile > longest and shard is not None and tile <= context:
        draft.sink.report(
            "E205",
            f"{described} is longer than what a core has, {longest} positions",
            span,
            helps=(f"write `tile = {longest} tokens`",),
            others=(Label(shard.span, f"{context} positions over {ways} cores"),),
        )
    elif tile > longest:
        draft.sink.report(
            "E205",
            f"{described} is longer than the context, {context}",
            span,
            helps=(f"write `tile = {longest} tokens`",),
        )
    elif tile < STEP:
        draft.sink.report(
            "E205",
            f"{described} is shorter than {STEP}",
            span,
            notes=("shorter transfers take longer to start than to run",),
            helps=(f"write `tile = {min(2 * STEP, longest)} tokens`",),
        )
    elif tile % STEP:
        near = (tile // STEP * STEP, min(-(-tile // STEP) * STEP, longest))
        draft.sink.report(
            "E205",
            f"{described} is not a multiple of {STEP}",
            span,
            helps=tuple(f"write `tile = {size} tokens`" for size in dict.fromkeys(near)),
        )


def _machine(declared: s.Schedule, draft: Draft) -> tuple[Target | None, tuple[int, ...]]:
    machines = [item for item in declared.items if isinstance(item, s.Target) and draft.once("target", item.span)]
    if not machines:
        draft.sink.report(
            "E201",
            f"schedule `{declared.name.text}` has no `target` line",
            declared.name.span,
            helps=("write `target tpu7x 2x2x1`",),
        )
        return None, ()
    item = machines[0]
    target = targets.find(item.chip.text)
    if target is None:
        draft.sink.report(
            "E201",
            f"unknown target `{item.chip.text}`",
            item.chip.span,
            notes=targets.notes(item.chip.text),
            helps=did_you_mean(item.chip.text, targets.known()),
        )
    elif len(item.topology) != target.topology_rank or 0 in item.topology:
        draft.sink.report("E201", f"a topology of {target.name} has {target.topology_rank} lengths", item.span)
        return None, ()
    elif not target.exists(item.topology):
        _no_such_machine(target, item, draft)
        return None, ()
    return target, item.topology


def _no_such_machine(target: Target, item: s.Target, draft: Draft) -> None:
    """E201, with machines that there are."""

    def named(topology: tuple[int, ...]) -> str:
        return f"{target.name} {'x'.join(map(str, topology))}"

    near = " and ".join(f"`{named(other)}`" for other in target.near(item.topology))
    most = target.most
    largest = f"{isqrt(most)}x{isqrt(most)}" if target.topology_rank == 2 else f"{most} chips"
    draft.sink.report(
        "E201",
        f"there is no {named(item.topology)}",
        item.span,
        notes=(
            "the first two lengths are 1 or even: so chips stand in their hosts",
            f"the largest {target.name} has {largest}",
        ),
        helps=(f"there are {near}",),
    )


def _numbers(item: s.Setting | None, draft: Draft, largest: int | None) -> tuple[int, ...]:
    values: list[int] = []
    if item is None:
        return ()
    for number in item.values:
        value = number.value
        if not isinstance(value, int) or value < 1 or (largest is not None and value > largest):
            limit = f"from 1 to {largest}" if largest else "of 1 or more"
            draft.sink.report("E205", f"`{item.keyword}` takes whole numbers {limit}, not {number.text}", number.span)
        elif value in values:
            draft.sink.report("E205", f"{value} is listed twice", number.span)
        else:
            values.append(value)
    if item.keyword == "rows" and item.options:
        draft.sink.report("E206", "`rows` takes no options", item.options[0].span)
    return tuple(values)


def _spans(item: s.Setting | None, draft: Draft) -> tuple[tuple[int, ...], bool]:
    keep = False
    for option in () if item is None else item.options:
        if option.name.text == "keep" and isinstance(option.value, s.Words) and option.value.text == "every row":
            keep = True
        else:
            draft.sink.report("E206", "`span` takes `keep = every row`", option.span)
    return _numbers(item, draft, LARGEST_ROWS) or (1,), keep


def _context(item: s.Setting | None, declared: s.Schedule, draft: Draft) -> int:
    if item is None:
        draft.sink.report(
            "E201",
            f"schedule `{declared.name.text}` has no `context` line",
            declared.name.span,
            helps=("write `context 4096`",),
        )
        return 1
    values = _numbers(item, draft, None)
    if len(item.values) > 1 or item.options:
        draft.sink.report("E205", "`context` takes one number", item.span)
    return values[0] if values else 1


def _mesh(declared: s.Schedule, target: Target | None, topology: tuple[int, ...], draft: Draft) -> None:
    for item in declared.items:
        if not isinstance(item, s.Mesh) or not draft.once("mesh", item.span):
            continue
        for axis in item.axes:
            if not isinstance(axis.size.value, int) or axis.size.value < 1:
                draft.sink.report(
                    "E205",
                    f"the length of axis `{axis.name.text}` must be a whole number of 1 or more, not {axis.size.text}",
                    axis.size.span,
                )
            elif axis.name.text in draft.mesh:
                draft.sink.report("E203", f"axis `{axis.name.text}` is named twice", axis.span)
            else:
                draft.mesh[axis.name.text] = axis.size.value
        if len(item.axes) > 3:
            draft.sink.report("E203", "a mesh has one axis to three", item.span)
    if target is None:
        return
    cores, ways = target.devices(topology), prod(draft.mesh.values())
    if ways != cores:
        lengths = " x ".join(map(str, draft.mesh.values())) or "1"
        shape = "x".join(map(str, topology))
        at = draft.seen.get("mesh", declared.name.span)
        draft.sink.report(
            "E203",
            f"{target.name} {shape} has {cores} cores; the mesh is {lengths} = {ways}",
            at,
            helps=(f"write `mesh tp = {cores}`",),
        )


def _shard(item: s.Shard, draft: Draft) -> None:
    axes = draft.axes(item.axes)
    model = draft.model
    used = {a.name for w in model.weights.values() for axis in w.shape for a in axis.atoms}
    used |= {a.name for st in model.states.values() for axis in st.type.shape for a in axis.atoms}
    used |= {"position" for st in model.states.values() if st.kind == "cache"}
    for entry in item.items:
        name = entry.size.text
        if name != "position" and name not in model.sizes:
            draft.sink.report(
                "E204", f"unknown size `{name}`", entry.size.span, helps=did_you_mean(name, (*model.sizes, "position"))
            )
        elif name not in used:
            draft.sink.report(
                "E207",
                f"no weight or state has an axis of `{name}`",
                entry.size.span,
                notes=("a line without an effect is an error",),
            )
        elif name in draft.shards:
            draft.sink.report(
                "E202", f"`{name}` is sharded twice", entry.span, others=(Label(draft.shards[name].span, "first here"),)
            )
        elif entry.option is not None and name == "position":
            draft.sink.report(
                "E206", "`position` takes no options", entry.option.span, notes=("each core has positions of its own",)
            )
        elif entry.option is not None and entry.option.text != "repeat":
            draft.sink.report(
                "E206",
                f"unknown option `{entry.option.text}`",
                entry.option.span,
                helps=("`(repeat)` lets several cores hold the same entry",),
            )
        elif axes and all(draft.mesh[axis] == 1 for axis in axes):
            draft.sink.report(
                "E207",
                f"`{name}` is sharded over one core only",
                entry.span,
                notes=("a line without an effect is an error",),
            )
        elif axes:
            draft.shards[name] = Shard(name, axes, entry.option is not None, entry.span)


def _split(item: s.Split, draft: Draft) -> None:
    axes = draft.axes(item.axes)
    for name in item.weights:
        weight = draft.weight(name)
        if weight is None or not axes:
            continue
        declared = draft.model.weights[weight]
        if len(declared.shape) != 2 or not draft.facts.products_of(weight):
            draft.sink.report(
                "E207",
                f"`{weight}` is not the matrix of a product; only those are split",
                name.span,
                others=(Label(declared.span, "declared here"),),
            )
        elif weight in draft.splits:
            draft.sink.report(
                "E202",
                f"`{weight}` is split twice",
                name.span,
                others=(Label(draft.splits[weight].span, "first here"),),
            )
        else:
            draft.splits[weight] = Split(weight, axes, name.span)


def _cuts(draft: Draft) -> list[tuple[str, ...]]:
    return [shard.axes for shard in draft.shards.values()] + [split.axes for split in draft.splits.values()]


def _unused_axes(draft: Draft) -> None:
    used = {axis for axes in _cuts(draft) for axis in axes}
    for axis, length in draft.mesh.items():
        if axis not in used and length > 1:
            draft.sink.report(
                "E207",
                f"nothing is sharded over `{axis}`: {length} cores would do the same work",
                draft.seen["mesh"],
                helps=(f"write `shard {axis} : …`",),
            )
