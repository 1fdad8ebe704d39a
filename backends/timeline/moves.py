"""What a schedule's movement could be instead: neighbours of a schedule, one choice changed at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from attrs import evolve, frozen

from ...dsl.diagnostics import MksError
from ...dsl.model.instance import Instance
from ...dsl.program import ir as p
from ...dsl.program.bill import bill
from ...dsl.program.lower import lower
from ...dsl.schedule.blocks import longest_tile
from ...dsl.schedule.ir import Point, Prefetch, Reduce, Schedule

_TILES = (128, 256, 512, 1024, 2048)
_SLOTS = (2, 3, 4, 6, 8)
_BY = ("direct", "scatter_gather", "two_level")
_UNSAID = ("direct", "f32")


type Choice = Callable[[Schedule], Iterator[Move]]


@frozen
class Move:
    """Another schedule, and what differs, in words."""

    text: str
    schedule: Schedule


def choices(schedule: Schedule, instance: Instance, program: p.Program) -> list[Choice]:
    """What can be chosen; each is a function from a schedule to its alternatives, which exclude each other."""
    found: list[Choice] = []
    for i in range(len(schedule.streams)):
        found.append(partial(_streams, i, instance))
    found += [partial(_reduce, name, program) for name in _sums(program)]
    found += [partial(_cache, x.what) for x in schedule.prefetches if x.kind == "cache"]
    found += [partial(_fetch, i) for i in range(len(schedule.fetches))]
    found += [partial(_points, kind, part) for kind, part in _loads(program)]
    return found


def fitting(schedule: Schedule, instance: Instance) -> dict[int, p.Program] | None:
    """The Programs at all of its rows, if they can be made and fit."""
    found = {}
    for rows in sorted(schedule.rows, reverse=True):
        try:
            found[rows] = lower(schedule, instance, rows)
        except MksError:
            return None
        charged = bill(found[rows])
        if charged.total > charged.limit or charged.scalars > charged.smem_limit or charged.held > charged.hbm_limit:
            return None
    return found


def _streams(at: int, instance: Instance, schedule: Schedule) -> Iterator[Move]:
    stream = schedule.streams[at]

    def made(slots: int) -> Schedule:
        streams = schedule.streams
        return evolve(schedule, streams=(*streams[:at], evolve(stream, slots=slots), *streams[at + 1 :]))

    low, high = 1, max(2 * stream.slots, 64)
    while low < high:  # the most slots that fit
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fitting(made(middle), instance) else (low, middle - 1)
    steps = {low, *(slots for slots in (stream.slots - 4, stream.slots - 2, stream.slots + 2, stream.slots + 4,
                                        stream.slots + 8) if 1 < slots < low)}  # fmt: skip
    for slots in sorted(steps - {stream.slots}):
        yield Move(f"stream {stream.name}: slots = {slots}", made(slots))


def _sums(program: p.Program) -> list[str]:
    """Sums that a schedule can speak of: products end in them, and they are not left scattered."""
    products = {value for product in program.shares.facts.products for value in product.values}
    sums = {name: x for name, x in program.exchanges.items() if x.kind == "sum" and x.by != "scatter"}
    return [name for name in sums if name in products]


def _reduce(value: str, program: p.Program, schedule: Schedule) -> Iterator[Move]:
    """What is direct and f32 needs no line."""
    said = next((x for x in schedule.reduces if x.value == value), None)
    now = _UNSAID if said is None else (said.by, said.wire)
    rest = tuple(x for x in schedule.reduces if x is not said)
    for by in _BY:
        for wire in ("bf16", "f32"):
            if (by, wire) == now or (by == "two_level" and schedule.cores % 2):
                continue
            line = Reduce(value, by, wire, program.exchanges[value].span if said is None else said.span)
            lines = rest if (by, wire) == _UNSAID else (*rest, line)
            yield Move(f"reduce {value} (by = {by}, wire = {wire})", evolve(schedule, reduces=lines))


def _cache(part: str, schedule: Schedule) -> Iterator[Move]:
    at, line = next((i, x) for i, x in enumerate(schedule.prefetches) if (x.kind, x.what) == ("cache", part))
    longest = longest_tile(schedule.context, schedule.ways(schedule.over_positions))
    for tile in _TILES:
        for slots in _SLOTS:
            if (tile, slots) != (line.tile, line.slots) and tile <= longest:
                yield Move(f"prefetch {line.what}.cache (tile = {tile} tokens, slots = {slots})",
                           _replaced(schedule, at, evolve(line, tile=tile, slots=slots)))  # fmt: skip


def _replaced(schedule: Schedule, at: int, line: Prefetch) -> Schedule:
    prefetches = schedule.prefetches
    return evolve(schedule, prefetches=(*prefetches[:at], line, *prefetches[at + 1 :]))


def _fetch(at: int, schedule: Schedule) -> Iterator[Move]:
    line, fetches = schedule.fetches[at], schedule.fetches
    for slots in _SLOTS:
        if slots != line.slots:
            changed = evolve(line, slots=slots)
            yield Move(f"fetch {line.part}.experts (slots = {slots})",
                       evolve(schedule, fetches=(*fetches[:at], changed, *fetches[at + 1 :])))  # fmt: skip


def _loads(program: p.Program) -> list[tuple[str, str]]:
    """What could be prefetched: each part's states, and all vectors."""
    states = dict.fromkeys(
        ("state", copy.part)
        for copy in program.copies.values()
        if copy.part is not None and copy.name in program.arrays and program.arrays[copy.name].kind == "state"
    )
    vectors = any(array.kind == "vectors" and array.part is not None for array in program.arrays.values())
    return [(kind, part) for kind, part in states if part is not None] + [("vectors", "vectors")] * vectors


def _points(kind: str, part: str, schedule: Schedule) -> Iterator[Move]:
    at = next((i for i, x in enumerate(schedule.prefetches) if (x.kind, x.what) == (kind, part)), None)
    name = part if kind == "vectors" else f"{part}.{kind}"
    for what in ("part", "layer"):
        point = Point("previous", what, schedule.span)
        text = f"prefetch {name} at previous {what}"
        if at is None:
            line = Prefetch(kind, part, (point,), None, None, schedule.span)
            yield Move(text, evolve(schedule, prefetches=(*schedule.prefetches, line)))
        elif [(x.relation, x.what) for x in schedule.prefetches[at].points] != [("previous", what)]:
            yield Move(text, _replaced(schedule, at, evolve(schedule.prefetches[at], points=(point,))))
