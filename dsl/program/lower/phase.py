"""One step of the definition becomes a phase: its parts, what is around its layers, and when all of it sets out."""

from __future__ import annotations

from collections import Counter

from ...collectives.argmax import ARGMAX
from ...collectives.collective import Wire
from ...model import ir as m
from ...model.expressions import walk
from ...records import define
from ...targets.lanes import LANES
from .. import ir as p
from .body import lower_body
from .build import Build, cannot
from .frame import Mark, Ops
from .prefetch import place_starts
from .small_weights import vectors


@define
class LoweredStep:
    """A step's ops: those of each part, and those before and after its loop over layers."""

    build: Build
    parts: dict[str, Ops]
    first: Ops
    last: Ops
    loop: m.Loop | None


def lower_step(build: Build) -> LoweredStep:
    """The bodies of the build's step; what all phases have in common grows."""
    parts = {}
    for name, part in build.schedule.model.parts.items():
        if build.layers_of(name):
            vectors(build, name)
            parts[name] = lower_body(build, name, part.body)
    before, loop, after = _around(build.step)
    vectors(build, build.place)
    _taps(build, (*before, *after))
    outputs = frozenset(build.step.outputs)
    first = lower_body(build, build.place, before, outputs)
    last = lower_body(build, build.place, after, outputs)
    return LoweredStep(build, parts, first, last, loop)


def body_of(made: LoweredStep, begin: list[p.Op], end: list[p.Op]) -> tuple[p.Op, ...]:
    """A phase's ops, once all resources are known; `begin` are those before all others, `end` those after."""
    build, loop, parts = made.build, made.loop, made.parts
    choices = _choices(build, loop, tuple(parts))
    starts = place_starts(build, choices, parts)
    body = [*begin, *_turns(build), *starts, *_plain(made.first)]
    if loop is not None and choices:
        layers = build.layer_parts
        placed = tuple(
            p.LayerSwitch(i, tuple((name, tuple(_plain(parts[name]))) for name in names))
            for i, names in enumerate(choices)
        )
        body.append(p.LayerLoop(min(layers), max(layers) + 1, placed))
    return (*body, *_plain(made.last), *end)


def _turns(build: Build) -> list[p.Op]:
    """What the step's rotary embeddings turn by."""
    instance, step = build.shares.instance, build.step.name
    return [made for key, made in build.turns.items() if p.rope_key(made.call, made.channels, instance, step) == key]


def _around(step: m.Step) -> tuple[tuple[m.Statement, ...], m.Loop | None, tuple[m.Statement, ...]]:
    """A step's statements before its loop over the layers, the loop, and those after it."""
    for i, statement in enumerate(step.body):
        if isinstance(statement, m.Loop) and statement.variable == "layer":
            return step.body[:i], statement, step.body[i + 1 :]
    return step.body, None, ()


def _taps(build: Build, statements: tuple[m.Statement, ...]) -> None:
    """Values of the drafted model that a step reads are there before its first op."""
    model = build.schedule.model
    read = {
        node.name
        for s in statements
        if isinstance(s, m.Assign | m.Write)
        for node in walk(s.value)
        if isinstance(node, m.Local) and node.name in model.taps
    }
    for name in model.taps:
        if name in read:
            tap, key = model.taps[name], p.TapsRef(name)
            shape, dtype = build.shares.shape(tap.type.shape), build.dtype(tap.type)
            if shape != build.shares.instance.shape(tap.type.shape):
                raise cannot("read taps of which each core has a share", tap.span)
            build.buffer(key, (1, build.rows, *shape), dtype, "", tap.span)
            build.views[build.full(name, build.place)] = p.View(key, 0, shape)
            build.copies[key] = p.Copy(key, build.place, key, key, 1)
            build.arrays[key] = p.Array(key, (1, build.rows, *shape), dtype, "taps", build.place)


def _choices(build: Build, loop: m.Loop | None, parts: tuple[str, ...]) -> list[tuple[str, ...]]:
    """For each place in a layer, the parts that some layer runs there."""
    found = []
    for run in loop.body if loop is not None else ():
        assert isinstance(run, m.Run)
        names = tuple(name for name in dict.fromkeys((run.part, run.other)) if name in parts and name is not None)
        if names:
            found.append(names)
    for name, count in Counter(name for names in found for name in names).items():
        if loop is not None and count > 1:
            _again(build, name, count, loop)
    return found


def _again(build: Build, part: str, count: int, loop: m.Loop) -> None:
    """A part that stands twice in a layer has the layer's weights both times; its states would need two entries."""
    own = [state for state in build.schedule.model.states.values() if state.part == part and state.kind != "buffer"]
    if own or build.facts.experts.get(part) or any(isinstance(s, m.Write) for s in build.facts.bodies[part]):
        raise cannot(f"run `{part}` twice in one layer, which has more than weights and values", loop.span)
    if any(parts.count(part) not in (0, count) for parts in build.layer_parts.values()):
        raise cannot(f"run `{part}` twice in some layers and once in others", loop.span)


def _plain(ops: Ops) -> list[p.Op]:
    return [op for op in ops if not isinstance(op, Mark)]


def end_of(made: LoweredStep) -> list[p.Op]:
    """What the phase saved has left; then its outputs leave."""
    build, parts = made.build, made.parts
    saved = [copy for copy in build.copies.values() if copy.name in build.outputs and copy.part in parts]
    found: list[p.Op] = [p.StoreWait(copy.name, ahead=False, all_=True) for copy in saved]
    kept = [array.name for array in build.outputs.values() if array.part in parts and array.name not in build.copies]
    found += [p.Emit(name, name) for name in kept]
    if build.step.name:
        return found + _values(build)
    return found + _ids(build)


def _values(build: Build) -> list[p.Op]:
    """The outputs of a named step, by their names."""
    found: list[p.Op] = []
    for name in build.step.outputs:
        full = build.full(name, build.place)
        view = build.views[full]
        held = build.buffers[view.buffer]
        left = p.StepOutputRef(full)
        build.outputs[left] = p.Array(left, held.shape, held.dtype, "value", build.place)
        found.append(p.Emit(view.buffer, left))
    return found


def _ids(build: Build) -> list[p.Op]:
    """The ids are chosen, and the logits leave."""
    axis = build.step.types["logits"].shape[0]
    share = build.shares.length(axis)
    exchange = None
    # The last collective is over all cores: only so have all left the barrier when one leaves the call.
    apart = any(set(x.axes) != set(build.schedule.over_all) for x in build.exchanges.values())
    if share != build.shares.instance.length(axis) or apart:
        exchange = p.IdsRef()
        build.exchanges[exchange] = p.Collective(
            exchange, ARGMAX, Wire.INT32, build.schedule.over_all, p.LOGITS, None, 0, LANES, build.step.span
        )
    held = build.views[p.LOGITS].buffer
    left = p.LogitsRef()
    build.outputs[left] = p.Array(left, build.buffers[held].shape, build.buffers[held].dtype, "logits")
    return [p.Argmax(p.LOGITS, share, exchange), p.Emit(held, left)]
