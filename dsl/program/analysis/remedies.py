"""What of a schedule would fit: values found by search, each checked as the schedule itself is."""

from __future__ import annotations

from collections.abc import Callable, Collection

from attrs import evolve

from ...collectives.collective import Wire
from ...diagnostics import MksError
from ...schedule.blocks import STEP
from ...schedule.ir import Pass, Prefetch, Schedule
from ...schedule.shares import Shares
from .. import ir as p
from ..layout.tiling import ROW_BYTES
from ..lower.lower import lower
from .memory import Bill, bill, mib

type _Made = Callable[[int], Schedule]

_NONE = "no depth of a ring, tile, wire type, number of rows or span makes it fit"


def remedies(shares: Shares, found: Bill, over: Collection[Pass]) -> tuple[str, ...]:
    """One line for each value that alone makes it fit; or what does together; or that nothing does.

    `found` is the largest bill of the passes that do not fit, which are `over`.
    """
    schedule = shares.schedule
    helps: list[str] = []

    def fits(other: Schedule, of: Pass = found.of) -> int | None:
        return _fits(other, shares, of, found)

    cheapest, least = schedule, _least_slots(shares, found.of)
    for i, stream in enumerate(schedule.streams):
        slots = _largest(_slots_of_stream(schedule, i), least[stream.name], _most(stream.slots, found), fits)
        helps += _said(f"slots = {{}} for `{stream.name}` fits", slots)
    for i, prefetch in enumerate(schedule.prefetches):
        if prefetch.kind == "cache":
            helps += _cache(schedule, i, prefetch, fits)
    if any(reduce.wire is Wire.F32 for reduce in schedule.reduces):
        cheapest = evolve(schedule, reduces=tuple(evolve(x, wire=Wire.BF16) for x in schedule.reduces))
        if (total := fits(cheapest)) is not None:
            helps.append(f"wire = bf16 for every sum fits ({mib(total)})")
    helps += _fewer(over, schedule, lambda of: fits(schedule, of))
    return tuple(helps) or _together(cheapest, least, found, fits)


def _fewer(over: Collection[Pass], schedule: Schedule, fits: Callable[[Pass], int | None]) -> list[str]:
    """The most rows of those listed, and the longest span, that fit, of what is over."""
    found: list[tuple[Pass, int]] = []
    for consecutive in dict.fromkeys(each.consecutive for each in over):
        most = max(each.tokens for each in over if each.consecutive == consecutive)
        listed = range(2, most) if consecutive else sorted(n for n in schedule.rows if n < most)
        passes = [Pass(tokens, consecutive) for tokens in listed]
        best = _largest(passes.__getitem__, 0, len(passes) - 1, fits)
        if best is None:
            return []
        found.append((passes[best[0]], best[1]))
    said = " and ".join(str(each) for each, _ in found)
    return [f"{said} fit{'s' * (len(found) == 1)} ({mib(max(total for _, total in found))})"]


def _fits(other: Schedule, shares: Shares, of: Pass, found: Bill) -> int | None:
    """What it needs, if that fits. Of an estimate nothing is known but that its streams are their slots."""
    try:
        made = bill(lower(other, shares.instance, of.tokens, consecutive=of.consecutive))
    except MksError:
        if not found.estimated or of != found.of:
            return None
        saved = sum((a.slots - b.slots) * a.slot for a, b in zip(shares.schedule.streams, other.streams, strict=True))
        return found.total - saved if saved and found.total - saved <= found.limit else None
    return made.total if made.total <= made.limit else None


def _largest[T](
    made: Callable[[int], T], least: int, most: int, fits: Callable[[T], int | None]
) -> tuple[int, int] | None:
    """The largest number in `least .. most` of which what is made fits, and what that needs; more takes more."""
    low, high, best = least, most, None
    while low <= high:
        middle = (low + high) // 2
        if (total := fits(made(middle))) is not None:
            best, low = (middle, total), middle + 1
        else:
            high = middle - 1
    return best


def _most(slots: int, found: Bill) -> int:
    """No ring has more slots than its shortest transfers, of eight tape rows, leave room for."""
    return min(slots, found.limit // (8 * ROW_BYTES))


def _least_slots(shares: Shares, of: Pass) -> dict[str, int]:
    """So many transfers of each stream a product waits for at once; 1 where there is no Program to tell."""
    least = {stream.name: 1 for stream in shares.schedule.streams}
    try:
        products = lower(
            shares.schedule, shares.instance, of.tokens, consecutive=of.consecutive, shares=shares
        ).products.values()
    except MksError:
        return least
    for made in products:
        if isinstance(made.ring, p.StreamRef):
            least[made.ring.name] = max([least[made.ring.name], *(len(run.rows) for run in made.tiling.runs)])
    return least


def _said(text: str, best: tuple[int, int] | None, unit: int = 1) -> list[str]:
    """`text` with the number found, in its `unit`."""
    return [] if best is None else [f"{text.format(best[0] * unit)} ({mib(best[1])})"]


def _slots_of_stream(schedule: Schedule, i: int) -> _Made:
    streams = schedule.streams
    return lambda slots: evolve(schedule, streams=(*streams[:i], evolve(streams[i], slots=slots), *streams[i + 1 :]))


def _cache(schedule: Schedule, i: int, prefetch: Prefetch, fits: Callable[[Schedule], int | None]) -> list[str]:
    """A shorter tile, or fewer of them."""
    rest = schedule.prefetches

    def of_tile(lanes: int) -> Schedule:
        return evolve(schedule, prefetches=(*rest[:i], evolve(prefetch, tile=lanes * STEP), *rest[i + 1 :]))

    def of_slots(slots: int) -> Schedule:
        return evolve(schedule, prefetches=(*rest[:i], evolve(prefetch, slots=slots), *rest[i + 1 :]))

    tile = _largest(of_tile, 1, (prefetch.tile or 0) // STEP, fits)
    slots = _largest(of_slots, 1, prefetch.slots or 1, fits)
    what = f"`{prefetch.what}.cache` fits"
    return [*_said(f"tile = {{}} tokens for {what}", tile, STEP), *_said(f"slots = {{}} for {what}", slots)]


def _together(
    schedule: Schedule, slots: dict[str, int], found: Bill, fits: Callable[[Schedule], int | None]
) -> tuple[str, ...]:
    """The shortest tiles, and then the deepest rings that fit with them."""
    short = tuple(
        evolve(x, tile=min(x.tile or STEP, STEP), slots=1) if x.kind == "cache" else x for x in schedule.prefetches
    )
    least = evolve(schedule, prefetches=short)
    if fits(least) is not None:
        return ("wire = bf16, tiles of 128 tokens and one slot of each together fit",)
    for i, stream in enumerate(schedule.streams):
        best = _largest(_slots_of_stream(least, i), slots[stream.name], _most(stream.slots, found), fits)
        if best is not None:
            return (f"slots = {best[0]} for `{stream.name}` fits, with wire = bf16 and one tile of 128 tokens",)
    return (_NONE,)
