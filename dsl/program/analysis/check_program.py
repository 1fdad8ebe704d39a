"""What lowering finds in a schedule: slots that are too small, points too late, and lines without effect."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from ...collectives.kinds import UNSAID
from ...diagnostics import Diagnostic, Label, MksError
from ...model.instance import Instance
from ...records import frozen
from ...schedule.blocks import longest_tile
from ...schedule.ir import Point, Prefetch, Reduce, Schedule
from ...source import Span
from .. import ir as p
from ..ir.walk import walk
from ..lower.attention import TILE_SLOTS, TILE_TOKENS
from ..lower.lower import lower
from ..lower.passes import Lowered, lower_all
from ..verify.prove import prove_all

UNABLE = "E901"


def check_program(
    schedule: Schedule, instance: Instance, lines: bool, lowered: Lowered | None = None
) -> list[Diagnostic]:
    """What is wrong with a schedule's movement in any of its passes; with `lines`, those that change nothing too.

    What kernels cannot do yet is no error of the definition, and a note. Which lines change nothing, the number of
    rows has no part in. `lowered` are the schedule's Programs, where they are there already.
    """
    made = lowered or lower_all(schedule, instance)
    found = [_unable(d) if d.code == UNABLE else d for d in made.found]
    found += prove_all(made.programs.values())
    found += list(dict.fromkeys(_unable(p.several_steps(each)) for each in made.programs.values() if each.phases[1:]))
    return [*found, *(idle_lines(made.widest) if lines and made.widest is not None else ())]


def _unable(found: Diagnostic) -> Diagnostic:
    """The same as a note."""
    return evolve(found, code="N901", notes=(*found.notes, "the reference runs it; kernels refuse it"))


def idle_lines(program: p.Program) -> list[Diagnostic]:
    """An E207 for each line without which the Program is the same.

    Lines of kinds that lowering does not read yet are not judged.
    """
    idle = [line for line in _lines(program.schedule) if not _shows(line, program) and _same(program, line.without)]
    whole = {line.part_of for line in idle if line.part_of is not None} & {line.span for line in idle}
    return [
        Diagnostic("E207", f"the Program is the same without `{line.text}`", Label(line.span), notes=(line.note,))
        for line in idle
        if line.part_of not in whole
    ]


@frozen
class _Line:
    """A line, or a part of one, and the schedule without it; `made` is what it says, where one thing says it."""

    text: str
    span: Span
    without: Schedule
    note: str
    made: Prefetch | Reduce | tuple[str, str] | tuple[Prefetch, Point] | None = None
    part_of: Span | None = None


def _lines(schedule: Schedule) -> Iterator[_Line]:
    for i, stream in enumerate(schedule.streams):
        for place, groups in stream.lines:
            fewer = evolve(stream, lines=tuple(line for line in stream.lines if line[0] != place))
            without = evolve(schedule, streams=(*schedule.streams[:i], fewer, *schedule.streams[i + 1 :]))
            names = ", ".join(w.removeprefix(f"{place}.") for group in groups for w in group.weights)
            if groups:
                yield _Line(
                    f"{place} : {names}",
                    groups[0].span.until(groups[-1].span),
                    without,
                    f"no layer multiplies what `{place}` lists",
                    made=(stream.name, place),
                )
    for prefetch in schedule.prefetches:
        others = tuple(each for each in schedule.prefetches if each is not prefetch)
        what = prefetch.what if prefetch.kind in ("weight", "vectors") else f"{prefetch.what}.{prefetch.kind}"
        yield _Line(
            f"prefetch {what}",
            prefetch.span,
            evolve(schedule, prefetches=others),
            "it sets out there without being told",
            made=prefetch,
        )
        for point in prefetch.points if len(prefetch.points) > 1 else ():
            fewer_points = tuple(each for each in prefetch.points if each is not point)
            changed = evolve(prefetch, points=fewer_points)
            kept = tuple(changed if each is prefetch else each for each in schedule.prefetches)
            yield _Line(
                point.what if point.relation == "at" else f"{point.relation} {point.what}",
                point.span,
                evolve(schedule, prefetches=kept),
                "of several points, the last that comes before every use counts",
                made=(prefetch, point),
                part_of=prefetch.span,
            )
    for reduce in schedule.reduces:
        rest = tuple(each for each in schedule.reduces if each is not reduce)
        yield _Line(
            f"reduce {reduce.value}",
            reduce.span,
            evolve(schedule, reduces=rest),
            "sums are completed `by = direct` and travel as `wire = f32` where nothing is said",
            made=reduce,
        )


def _shows(line: _Line, program: p.Program) -> bool:
    """Whether the Program has something that it would not have without the line; cheaper than lowering again."""
    match line.made:
        case (Prefetch() as prefetch, Point() as point):
            return _loads(prefetch, point, program)
        case (str() as name, place):
            ring = p.StreamRef(name)
            return ring in program.rings and any(x.ring == ring and x.place == place for x in program.products.values())
        case Reduce(value=value, by=by, wire=wire):
            sums = {ref.qualified: ref for ref in program.exchanges if isinstance(ref, p.SumRef) and not ref.number}
            own = sums.get(value)
            made = None if own is None else program.exchanges[own]
            columns = None if own is None else program.exchanges.get(p.ColumnsRef(own))
            if columns is not None and made is not None:
                return by.completes_columns and wire == columns.wire
            return made is not None and (by, wire) == (made.kind, made.wire) != UNSAID
        case Prefetch(kind="cache", what=part):
            rings = [ring for ring in program.caches.values() if ring.part == part]
            return any((ring.tile, ring.slots) != _unsaid(program.schedule, ring) for ring in rings)
        case Prefetch(kind="vectors" | "state" as kind, what=what):
            kinds = {array.name: array.kind for array in program.arrays.values()}
            return any(
                copy.slots > 1 and kinds.get(copy.name) == kind and what in ("vectors", copy.part)
                for copy in program.copies.values()
            )
    return False


def _loads(prefetch: Prefetch, point: Point, program: p.Program) -> bool:
    """Whether what a line prefetches sets out in a part where it does for this one of its points alone."""
    parts = [each.what.partition(".")[0] for each in prefetch.points]
    here = point.what.partition(".")[0]
    if parts.count(here) > 1 or {"part", "layer"} & set(parts):
        return False
    loads = (at.op for at in walk(program) if at.place == here and isinstance(at.op, p.CopyStart))
    return any(
        program.arrays[op.copy].kind == prefetch.kind and prefetch.what in ("vectors", program.copies[op.copy].part)
        for op in loads
    )


def _unsaid(schedule: Schedule, ring: p.CacheRing) -> tuple[int, int]:
    """The tile and the slots that a ring has where nothing is said."""
    return min(TILE_TOKENS, longest_tile(schedule.context, schedule.ways(ring.axes))), TILE_SLOTS


def _same(program: p.Program, schedule: Schedule) -> bool:
    """Whether another schedule gives the same Program; one that cannot be lowered does not."""
    try:
        other = lower(schedule, program.instance, program.rows, consecutive=program.consecutive)
    except MksError:
        return False
    return _content(program) == _content(other)


def _content(program: p.Program) -> tuple[object, ...]:
    """All but the schedule that it was made from; the order of entries counts, as that of a tape does."""
    held = (
        program.buffers,
        program.views,
        program.rings,
        program.products,
        program.copies,
        program.caches,
        program.exchanges,
        program.arrays,
        program.outputs,
    )
    return (*(list(each.items()) for each in held), [phase.body for phase in program.phases])
