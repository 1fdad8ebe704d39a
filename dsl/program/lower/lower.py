"""Model and Schedule to a Program."""

from __future__ import annotations

from ...diagnostics import Diagnostic, Label, MksError
from ...model import ir as m
from ...model.instance import Instance
from ...schedule.ir import Pass, Schedule, Stream
from ...schedule.shares import Shares
from .. import ir as p
from ..ir.walk import walk
from ..layout.tiling import ROW_BYTES
from .build import DIRECT, Build, cannot
from .phase import body_of, end_of, lower_step
from .traced import trace

type Step = tuple[m.Step, int, bool]  # with its rows, and whether they are tokens of one sequence


def lower(
    schedule: Schedule,
    instance: Instance,
    rows: int,
    plain: frozenset[str] = frozenset(),
    *,
    consecutive: bool = False,
    traced: bool = False,
    shares: Shares | None = None,
) -> p.Program:
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
    phases = tuple(
        p.Phase(build.step, build.rows, build.consecutive, build.layer_parts, body)
        for build, body in zip((each.build for each in made), bodies, strict=True)
    )
    program = p.Program(
        schedule,
        instance,
        shares,
        of,
        phases,
        common.buffers,
        common.views,
        common.rings,
        common.products,
        common.copies,
        common.caches,
        common.banks,
        common.exchanges,
        common.turns,
        common.scalars,
        common.arrays,
        common.outputs,
    )
    if len(phases) > 1:
        _ends_together(program)
    return program


def _ends_together(program: p.Program) -> None:
    """The last collective shows that all cores have entered: it must be over all of them."""
    talk = (p.Send, p.Argmax, p.ArgmaxValue)
    said = [at.op.exchange for at in walk(program) if isinstance(at.op, talk) and at.op.exchange is not None]
    if said and set(program.exchanges[said[-1]].axes) != set(program.schedule.over_all):
        raise cannot(f"end a call with `{said[-1]}`, which is not over all cores", program.exchanges[said[-1]].span)


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
    _parts_of_one_step(instance, steps)
    most = max(rows for rows in blocks if isinstance(rows, int))
    return [(step, most if step.block is None else int(str(instance.values[step.block])), True) for step in steps]


def _parts_of_one_step(instance: Instance, steps: list[m.Step]) -> None:
    """A part's products, buffers and arrays are those of one phase."""
    known: dict[str, str] = {}
    for step in steps:
        for part in dict.fromkeys(part for parts in instance.layer_parts(step.name).values() for part in parts):
            if part in known:
                said = f"run `{part}` in two steps, `{known[part]}` and `{step.name}`"
                raise cannot(said, instance.model.parts[part].span)
            known[part] = step.name


def make_rings(build: Build) -> None:
    """Each ring's slots, once all products are known; checks that what is waited for together fits."""
    streams = {p.StreamRef(stream.name): stream for stream in build.schedule.streams}
    found: list[Diagnostic] = []
    for name in dict.fromkeys(product.ring for product in build.products.values()):
        own = [product for product in build.products.values() if product.ring == name]
        most = max(len(run.rows) for product in own for run in product.tiling.runs)
        rows = max(max(product.tiling.transfers) for product in own)
        stream = streams.get(name) if isinstance(name, p.StreamRef) else None
        if stream is None:
            slots = most if name == DIRECT else max(len(product.tiling.transfers) for product in own)
            build.rings[name] = p.Ring(name, slots, rows, False)
            continue
        build.rings[name] = p.Ring(name, stream.slots, rows, True, stream.slots_span)
        found += _fits(own, stream)
    if found:
        raise MksError(found)


def _fits(own: list[p.Product], stream: Stream) -> list[Diagnostic]:
    """What is wrong with a stream's slots for its products; the largest of them is shown."""
    wide = max(own, key=lambda product: max(product.tiling.transfers))
    deep = max(own, key=lambda product: max(len(run.rows) for run in product.tiling.runs))
    tile = max(wide.tiling.transfers) * ROW_BYTES
    together = max(len(run.rows) for run in deep.tiling.runs)
    found = []
    if tile > stream.slot:
        found.append(
            Diagnostic(
                "E214",
                f"a transfer of `{wide.name}` takes {tile // 1024} KiB; a slot has {stream.slot // 1024}",
                Label(stream.slot_span),
                (Label(wide.span, f"`{wide.name}`"),),
                ("a product's tiles follow from its shape, so that slots change no bit of the result",),
                (f"write `slot = {tile // 1024} KiB`",),
            )
        )
    if together > stream.slots:
        found.append(
            Diagnostic(
                "E215",
                f"`{deep.name}` waits for {together} transfers at once; {stream.slots} slots never hold them",
                Label(stream.slots_span),
                (Label(deep.span, f"`{deep.name}`"),),
                helps=(f"write `slots = {together}` or more",),
            )
        )
    return found
