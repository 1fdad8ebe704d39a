"""Model and Schedule to a Program."""

from __future__ import annotations

from ...model import ir as m
from ...model.instance import Instance
from ...schedule.ir import Pass, Schedule
from ...schedule.shares import Shares
from .. import ir as p
from .build import Build, cannot, make_rings
from .phase import body_of, end_of, lower_step
from .traced import trace

type Step = tuple[m.Step, int, bool]  # with its rows, and whether they are tokens of one sequence


def lower(schedule: Schedule, instance: Instance, rows: int, plain: frozenset[str] = frozenset(), *,
          consecutive: bool = False, traced: bool = False, shares: Shares | None = None) -> p.Program:  # fmt: skip
    """A call of a model as one core runs it. Raises `MksError` where a schedule's line cannot be kept.

    It is the decode step, or of a model without one all of its steps in turn. `plain` names weights that are held as
    plain numbers, whatever codec the definition has for them. With `consecutive` the rows are tokens of one sequence,
    one after the other, and states are kept as they are after each. One that is `traced` also gives what each run of a
    part leaves behind, as `trace` says. `shares` are those of the schedule and the instance, where they are there
    already.
    """
    shares, of = shares or Shares(schedule, instance), Pass(rows, consecutive)
    steps = _steps(instance, of)
    common = Build(schedule, shares, shares.facts, steps[0][0], rows, plain)
    made = [lower_step(common.of(*step)) for step in steps]
    make_rings(common)
    if traced:
        if len(made) > 1:
            raise cannot("trace a call of several steps", instance.model.span)
        trace(made[0].build, made[0].parts, made[0].first)
    ends = [end_of(each) for each in made]
    begin: list[p.Op] = [p.Start(ring.name, ring.slots) for ring in common.rings.values() if ring.ahead]
    begin += [p.Barrier()] if common.exchanges else []
    bodies = [body_of(each, begin if each is made[0] else [], end) for each, end in zip(made, ends, strict=True)]
    phases = tuple(p.Phase(build.step, build.rows, build.consecutive, build.layer_parts, body)
                   for build, body in zip((each.build for each in made), bodies, strict=True))  # fmt: skip
    return p.Program(schedule, instance, shares, of, phases, common.buffers, common.views, common.rings,
                     common.products, common.copies, common.caches, common.banks, common.exchanges, common.turns,
                     common.scalars, common.arrays, common.outputs)  # fmt: skip


def _steps(instance: Instance, of: Pass) -> list[Step]:
    """The steps of a call: a block has its rows, and any other step of a drafter as many as a block."""
    decode = instance.model.steps.get(m.DECODE)
    if decode is not None:
        return [(decode, of.tokens, of.consecutive)]
    steps = list(instance.model.steps.values())
    blocks = [instance.values[step.block] for step in steps if step.block is not None]
    if not blocks:
        raise cannot("a model without a decode step", instance.model.span)
    if of != Pass(1):
        raise cannot(f"draft for {of.words}", instance.model.span, "write `rows 1`")
    most = max(rows for rows in blocks if isinstance(rows, int))
    return [(step, most if step.block is None else int(str(instance.values[step.block])), True) for step in steps]
