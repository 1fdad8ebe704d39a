"""What a schedule's movement could be instead: neighbours of a schedule, one choice changed at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, count

from attrs import evolve, frozen

from ...dsl.collectives.collective import Operation, Wire
from ...dsl.collectives.kinds import UNSAID, sums
from ...dsl.diagnostics import MksError
from ...dsl.model.facts import STEP
from ...dsl.model.instance import Instance
from ...dsl.program import ir as p
from ...dsl.program.analysis.memory import bill
from ...dsl.program.layout.tiling import ROW_BYTES
from ...dsl.program.lower.build import DIRECT
from ...dsl.program.lower.lower import lower
from ...dsl.schedule.blocks import longest_tile
from ...dsl.schedule.ir import Fetch, Group, Point, Prefetch, Reduce, Schedule, Stream

_TILES = (128, 256, 512, 1024, 2048)
_SLOTS = (2, 3, 4, 6, 8)
_RINGS = (4, 8, 16)


@frozen
class Choice:
    """What can be chosen, as the text names it; `moves` are a schedule's alternatives, which exclude each other."""

    name: str
    moves: Callable[[Schedule], Iterator[Move]]


@frozen
class Move:
    """Another schedule, and what differs, in words."""

    text: str
    schedule: Schedule


def choices(schedule: Schedule, instance: Instance, program: p.Program) -> list[Choice]:
    """All that can be chosen, what gains most first; `program` is one of the schedule as it was at first."""
    result: list[Choice] = []
    if unstreamed(program):
        result.append(Choice(f"stream {_free_name(schedule)}", partial(_stream, program)))
    for i, stream in enumerate(schedule.streams):
        result.append(Choice(f"stream {stream.name}", partial(_streams, i, instance)))
    result += [Choice(f"reduce {name}", partial(_reduce, name, program)) for name in _sums(program)]
    result += [Choice(f"prefetch {x.part}.cache", partial(_cache, x.part)) for x in program.caches.values()]
    result += [Choice(f"fetch {x.part}.experts", partial(_fetch, x.part)) for x in program.banks.values()]
    for kind, part in _loads(program):
        result.append(
            Choice(f"prefetch {part if kind == 'vectors' else f'{part}.{kind}'}", partial(_points, kind, part))
        )
    return result


def fitting(schedule: Schedule, instance: Instance) -> dict[int, p.Program] | None:
    """The Programs at all of its rows, if they can be made and fit."""
    per_rows = {}
    for rows in sorted(schedule.rows, reverse=True):
        try:
            per_rows[rows] = lower(schedule, instance, rows)
        except MksError:
            return None
        charged = bill(per_rows[rows])
        if charged.total > charged.limit or charged.scalars > charged.smem_limit or charged.held > charged.hbm_limit:
            return None
    return per_rows


def unstreamed(program: p.Program) -> list[p.Product]:
    """Products of which nothing moves the weights ahead."""
    return [product for product in program.products.values() if product.ring == DIRECT]


def _free_name(schedule: Schedule) -> str:
    taken = {stream.name for stream in schedule.streams}
    return next(name for name in chain(("dense",), (f"dense{i}" for i in count(2))) if name not in taken)


def _stream(program: p.Program, schedule: Schedule) -> Iterator[Move]:
    """One stream of all that none carries, in the order of use and fused as it is."""
    carried = {w for stream in schedule.streams for _, groups in stream.lines for g in groups for w in g.weights}
    products = [product for product in unstreamed(program) if not carried & set(product.weights)]
    lines: dict[str, dict[tuple[str, ...], Group]] = {}
    for product in products:
        lines.setdefault(product.place, {})[product.weights] = Group(product.weights, schedule.span)
    if not lines:
        return
    parts = [*(part for part in schedule.model.parts if part in lines), *(x for x in lines if x == STEP)]
    written = tuple((scope, tuple(lines[scope].values())) for scope in parts)
    slot = ROW_BYTES * max(max(product.tiling.transfers) for product in products)
    name, at = _free_name(schedule), schedule.span
    for slots in _RINGS:
        stream = Stream(name, slots, -(-slot // 1024) * 1024, written, at, at, at)
        yield Move(
            f"stream {name}: all that is not streamed, slots = {slots}",
            evolve(schedule, streams=(*schedule.streams, stream)),
        )


def _streams(at: int, instance: Instance, schedule: Schedule) -> Iterator[Move]:
    stream = schedule.streams[at]

    def made(slots: int) -> Schedule:
        streams = schedule.streams
        return evolve(schedule, streams=(*streams[:at], evolve(stream, slots=slots), *streams[at + 1 :]))

    low, high = 1, max(2 * stream.slots, 64)
    while low < high:  # the most slots that fit
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fitting(made(middle), instance) else (low, middle - 1)
    steps = {
        low,
        *(
            slots
            for slots in (stream.slots - 4, stream.slots - 2, stream.slots + 2, stream.slots + 4, stream.slots + 8)
            if 1 < slots < low
        ),
    }
    for slots in sorted(steps - {stream.slots}):
        yield Move(f"stream {stream.name}: slots = {slots}", made(slots))


def _sums(program: p.Program) -> list[str]:
    """Sums that a schedule can speak of: products end in them, and they are not left scattered."""
    products = {value for product in program.shares.facts.products for value in product.values}
    names = (name for name, x in program.exchanges.items() if x.kind.operation is Operation.SUM)
    return [x.qualified for x in names if isinstance(x, p.SumRef) and not x.number and x.qualified in products]


def _reduce(value: str, program: p.Program, schedule: Schedule) -> Iterator[Move]:
    """What is direct and f32 needs no line."""
    written = next((x for x in schedule.reduces if x.value == value), None)
    span = next(
        x.span for name, x in program.exchanges.items() if isinstance(name, p.SumRef) and name.qualified == value
    )
    now = UNSAID if written is None else (written.by, written.wire)
    rest = tuple(x for x in schedule.reduces if x is not written)
    for by in sums():
        for wire in (Wire.BF16, Wire.F32):
            if (by, wire) == now or by.unfit(schedule.cores, schedule.cores % 2 == 0):
                continue
            line = Reduce(value, by, wire, span if written is None else written.span)
            lines = rest if (by, wire) == UNSAID else (*rest, line)
            yield Move(f"reduce {value} (by = {by}, wire = {wire})", evolve(schedule, reduces=lines))


def _cache(part: str, schedule: Schedule) -> Iterator[Move]:
    at = next((i for i, x in enumerate(schedule.prefetches) if (x.kind, x.what) == ("cache", part)), None)
    if at is None:
        point = Point("at", f"{part}.start", schedule.span)
        at, line = len(schedule.prefetches), Prefetch("cache", part, (point,), None, None, schedule.span)
    else:
        line = schedule.prefetches[at]
    longest = longest_tile(schedule.context, schedule.ways(schedule.over_positions))
    for tile in _TILES:
        for slots in _SLOTS:
            if (tile, slots) != (line.tile, line.slots) and tile <= longest:
                yield Move(
                    f"prefetch {line.what}.cache (tile = {tile} tokens, slots = {slots})",
                    _replaced(schedule, at, evolve(line, tile=tile, slots=slots)),
                )


def _replaced(schedule: Schedule, at: int, line: Prefetch) -> Schedule:
    prefetches = schedule.prefetches
    return evolve(schedule, prefetches=(*prefetches[:at], line, *prefetches[at + 1 :]))


def _fetch(part: str, schedule: Schedule) -> Iterator[Move]:
    now = {line.part: line for line in schedule.fetches}
    for slots in _SLOTS:
        if part not in now or slots != now[part].slots:
            lines = now | {part: Fetch(part, slots, schedule.span)}
            yield Move(f"fetch {part}.experts (slots = {slots})", evolve(schedule, fetches=tuple(lines.values())))


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
