"""Model and Schedule to a Program."""

from __future__ import annotations

from ...collectives.argmax import ARGMAX
from ...collectives.collective import Wire
from ...model import ir as m
from ...model.facts import STEP
from ...model.instance import Instance
from ...schedule.ir import Pass, Schedule
from ...schedule.shares import Shares
from .. import ir as p
from .body import lower_body
from .build import Build, cannot, make_rings
from .frame import Mark, Ops
from .prefetch import place_starts
from .small_weights import vectors
from .traced import trace


def lower(schedule: Schedule, instance: Instance, rows: int, plain: frozenset[str] = frozenset(), *,
          consecutive: bool = False, traced: bool = False, shares: Shares | None = None) -> p.Program:  # fmt: skip
    """The decode step of a model as one core runs it. Raises `MksError` where a schedule's line cannot be kept.

    `plain` names weights that are held as plain numbers, whatever codec the definition has for them. With `consecutive`
    the rows are tokens of one sequence, one after the other, and states are kept as they are after each.
    One that is `traced` also gives what each run of a part leaves behind, as `trace` says. `shares` are those of the
    schedule and the instance, where they are there already.
    """
    shares = shares or Shares(schedule, instance)
    step = instance.model.steps.get(m.DECODE)
    if step is None:
        raise cannot("a model without a decode step", instance.model.span)
    build = Build(schedule, shares, shares.facts, step, rows, plain, consecutive)
    parts = {part: _part(build, part) for part in instance.model.parts if build.layers_of(part)}
    before, loop, after = _around(step)
    vectors(build, STEP)
    first = lower_body(build, STEP, before)
    last = lower_body(build, STEP, after)
    make_rings(build)
    if traced:
        trace(build, parts, first)
    choices = _choices(instance, loop, tuple(parts))
    starts = place_starts(build, choices, parts)
    body: list[p.Op] = [p.Start(ring.name, ring.slots) for ring in build.rings.values() if ring.ahead]
    end = _end(build, step)
    if build.exchanges:
        body.append(p.Barrier())
    body += build.turns.values()
    body += starts
    body += _plain(first)
    if loop is not None and choices:
        layers = instance.layer_parts(step.name)
        placed = tuple(p.LayerSwitch(i, tuple((name, tuple(_plain(parts[name]))) for name in names))
                       for i, names in enumerate(choices))  # fmt: skip
        body.append(p.LayerLoop(min(layers), max(layers) + 1, placed))
    body += _plain(last)
    body += end
    phase = p.Phase(step, rows, consecutive, instance.layer_parts(step.name), tuple(body))
    return p.Program(schedule, instance, shares, Pass(rows, consecutive), (phase,), build.buffers, build.views,
                     build.rings, build.products, build.copies, build.caches, build.banks, build.exchanges, build.turns,
                     build.scalars, build.arrays, build.outputs)  # fmt: skip


def _part(build: Build, part: str) -> Ops:
    vectors(build, part)
    statements = tuple(s for s in build.schedule.model.parts[part].body if isinstance(s, m.Assign | m.Write))
    if len(statements) != len(build.schedule.model.parts[part].body):
        raise cannot("loops inside a part", build.schedule.model.parts[part].span)
    return lower_body(build, part, statements)


def _around(step: m.Step) -> tuple[tuple[m.Assign | m.Write, ...], m.Loop | None, tuple[m.Assign | m.Write, ...]]:
    """A step's statements before its loop over the layers, the loop, and those after it."""
    before: list[m.Assign | m.Write] = []
    after: list[m.Assign | m.Write] = []
    loop = None
    for statement in step.body:
        if isinstance(statement, m.Loop):
            if statement.variable != "layer" or loop is not None:
                raise cannot("this loop", statement.span)
            loop = statement
        elif isinstance(statement, m.Assign | m.Write):
            (before if loop is None else after).append(statement)
    return tuple(before), loop, tuple(after)


def _choices(instance: Instance, loop: m.Loop | None, parts: tuple[str, ...]) -> list[tuple[str, ...]]:
    """For each place in a layer, the parts that some layer runs there."""
    found = []
    for run in loop.body if loop is not None else ():
        assert isinstance(run, m.Run)
        names = tuple(name for name in dict.fromkeys((run.part, run.other)) if name in parts and name is not None)
        if names:
            found.append(names)
    flat = [name for names in found for name in names]
    if len(set(flat)) != len(flat) and loop is not None:
        raise cannot("run a part twice in one layer", loop.span)
    return found


def _plain(ops: Ops) -> list[p.Op]:
    return [op for op in ops if not isinstance(op, Mark)]


def _end(build: Build, step: m.Step) -> list[p.Op]:
    """What was saved has left; the ids are chosen, and the logits leave."""
    found: list[p.Op] = [
        p.StoreWait(c.name, ahead=False, all_=True) for c in build.copies.values() if c.name in build.outputs
    ]
    if "logits" in step.types:
        share = build.shares.shape(step.types["logits"].shape)[0]
        cut = share != build.shares.instance.length(step.types["logits"].shape[0])
        exchange = None
        # The last collective is over all cores: only so have all left the barrier when one leaves the call.
        if cut or any(set(x.axes) != set(build.schedule.over_all) for x in build.exchanges.values()):
            exchange = "ids"
            build.exchanges[exchange] = p.Collective(exchange, ARGMAX, Wire.INT32, build.schedule.over_all,
                                                   "logits", "ids", 0, 128, step.span)  # fmt: skip
        found.append(p.Argmax("logits", share, exchange))
        held = build.views["logits"].buffer
        build.outputs["logits"] = p.Array("logits", build.buffers[held].shape, build.buffers[held].dtype, "logits")
        found.append(p.Emit(held, "logits"))
    return found
