"""When loads set out: where the schedule says, or at the start of the part that needs them."""

from __future__ import annotations

from attrs import field

from ...diagnostics import Diagnostic, Label, MksError
from ...model.facts import STEP
from ...records import define, frozen
from ...schedule.ir import Point, Prefetch
from .. import ir as p
from ..ir.walk import children
from .build import DIRECT, Build, cannot
from .frame import Mark, Ops


@frozen
class _Place:
    """A point in the bodies of parts, of which a layer runs one; `ahead`: in the layer before the one meant."""

    marks: dict[str, Mark]
    ahead: bool


@define
class _Points:
    """`choices` are the parts of each place in a layer, `bodies` their ops; `first` sets out before the first layer."""

    build: Build
    choices: list[tuple[str, ...]]
    bodies: dict[str, Ops]
    first: list[p.Op] = field(factory=list)

    @property
    def again(self) -> frozenset[str]:
        """The parts that stand twice in a layer: at no point of theirs anything sets out for others."""
        flat = [name for names in self.choices for name in names]
        return frozenset(name for name in flat if flat.count(name) > 1)

    @property
    def position(self) -> dict[str, int]:
        """Where in a layer a part runs."""
        return {name: i for i, names in enumerate(self.choices) for name in names}


def place_starts(build: Build, choices: list[tuple[str, ...]], bodies: dict[str, Ops]) -> list[p.Op]:
    """Put the starts of all loads into the parts' bodies; returns those that come before the first layer.

    Raises `MksError` where a line's points do not come before every use.
    """
    points = _Points(build, choices, bodies)
    early = {(x.kind, x.what): x for x in build.schedule.prefetches}
    for copy in build.copies.values():
        array = build.arrays.get(copy.name)
        mine = copy.part in bodies or (copy.part or STEP) == build.place
        if array is not None and mine:
            what = array.kind if array.kind == "vectors" else copy.part or ""
            _copy(copy, early.get((array.kind, what)), points)
    for cache in build.caches.values():
        said = early.get(("cache", cache.part))
        if said is not None and cache.part in bodies:
            _within(said, cache.part, p.StartTiles(cache.name), points)
    for ring in build.rings.values():
        own = [made for made in build.products.values() if made.ring == ring.name]
        if not ring.ahead and ring.name != DIRECT and own[0].place in bodies:
            said = next(early["weight", w] for made in own for w in made.weights if ("weight", w) in early)
            _within(said, own[0].place, p.Start(ring.name, ring.slots), points)
    return points.first


def _copy(copy: p.Copy, said: Prefetch | None, points: _Points) -> None:
    saved = copy.name in points.build.outputs
    if copy.part is None or copy.part == points.build.place:
        points.first += [p.CopyStart(copy.name, ahead=False), p.CopyWait(copy.name)]
        return
    own, start = points.bodies[copy.part], 1  # after the mark of the start
    if points.build.arrays[copy.name].kind == "vectors":
        own.insert(start, p.CopyWait(copy.name))
    if said is None or copy.part in points.again:
        own[start:start] = _load(copy, saved, ahead=False)
        return
    place = _latest(said, copy, copy.part, points)
    for name, mark in place.marks.items():
        ops = points.bodies[name]
        after = ops.index(mark) + 1
        ops[after:after] = _load(copy, saved, place.ahead)
    if place.ahead:
        points.first.append(p.CopyStart(copy.name, ahead=True))


def _load(copy: p.Copy, saved: bool, ahead: bool) -> list[p.Op]:
    """What was saved from the slot has left it before anything else comes in."""
    return [*([p.StoreWait(copy.name, ahead)] if saved else []), p.CopyStart(copy.name, ahead)]


def _within(said: Prefetch, part: str, start: p.Op, points: _Points) -> None:
    """A start at a point of the part itself: of those that the line names, the last before the use."""
    own = points.bodies.get(part, [])
    marks = [mark for place, mark in map(_mark, said.points) if place == part]
    places = [own.index(mark) for mark in marks if mark in own]
    if not places:
        raise cannot("prefetch this from another part", said.span, f"write `at {part}.start`")
    use = next(at for at, op in enumerate(own) if _uses(op, start))
    early = [at for at in places if at < use]
    if not early:
        raise _late(said, part)
    own.insert(max(early) + 1, start)


def _uses(op: p.Op | Mark, start: p.Op) -> bool:
    """Whether an op takes what a start brings."""
    if not isinstance(op, Mark) and any(_uses(inner, start) for body in children(op) for inner in body.ops):
        return True
    return (
        isinstance(op, p.Attend | p.AttendBlock | p.Wait)
        and isinstance(start, p.StartTiles | p.Start)
        and op.ring == start.ring
    )


def _latest(said: Prefetch, copy: p.Copy, part: str, points: _Points) -> _Place:
    """Of the points that come before a copy's use in every run of its part, the last."""
    found: list[tuple[tuple[bool, int, int], _Place]] = []
    named = [place for place in (_place(point, part, points) for point in said.points) if place is not None]
    for place in [*named, *_alternatives(named, points)]:
        if _always(place, part, points) and not _too_late(place, copy, part, points):
            offset = max(points.bodies[name].index(mark) for name, mark in place.marks.items())
            found.append(((not place.ahead, _position(place, points), offset), place))
    if not found:
        raise _late(said, part)
    return max(found, key=lambda each: each[0])[1]


def _alternatives(places: list[_Place], points: _Points) -> list[_Place]:
    """Points in parts of which a layer runs one or another, taken together."""
    by_position: dict[tuple[int, bool], list[_Place]] = {}
    for place in places:
        by_position.setdefault((_position(place, points), place.ahead), []).append(place)
    return [
        _Place({name: mark for place in together for name, mark in place.marks.items()}, ahead)
        for (_, ahead), together in by_position.items()
    ]


def _position(place: _Place, points: _Points) -> int:
    """Where in a layer a point's parts run."""
    return points.position[next(iter(place.marks))]


def _too_late(place: _Place, copy: p.Copy, part: str, points: _Points) -> bool:
    """Whether a point of the same run comes after the use."""
    own = points.bodies[part]
    alone = list(place.marks) == [part] and not place.ahead
    return alone and own.index(place.marks[part]) > own.index(p.CopyWait(copy.name))


def _late(said: Prefetch, part: str) -> MksError:
    return MksError(
        [
            Diagnostic(
                "E216",
                f"no point of this line comes before every run of `{part}`",
                Label(said.span),
                notes=("what is prefetched must have set out before its use in every layer",),
                helps=("name a point in a part that every layer runs before it, such as `previous part`",),
            )
        ]
    )


def _place(point: Point, part: str, points: _Points) -> _Place | None:
    mine = points.position[part]
    if point.relation == "previous" and point.what == "part":
        return _starts(points.choices[mine - 1], mine == 0, points)
    if point.relation == "previous" and point.what == "layer":
        return _starts(points.choices[0], True, points)
    place, mark = _mark(point)
    if place not in points.position or place in points.again or mark not in points.bodies[place]:
        return None
    theirs = points.position[place]
    ahead = theirs > mine or (point.relation == "previous" and theirs == mine)
    return _Place({place: mark}, ahead)


def _starts(parts: tuple[str, ...], ahead: bool, points: _Points) -> _Place | None:
    if points.again & set(parts):
        return None
    return _Place({name: Mark("start", name) for name in parts}, ahead)


def _mark(point: Point) -> tuple[str, Mark]:
    place, _, name = point.what.partition(".")
    if name == "start" and point.relation == "at":
        return place, Mark("start", place)
    return place, Mark("before" if point.relation == "before" else "after", point.what)


def _always(place: _Place, part: str, points: _Points) -> bool:
    """Whether one of the place's parts runs in the layer of, or before, every run of a part."""
    layers = points.build.layer_parts
    wanted = {layer - 1 if place.ahead else layer for layer in points.build.layers_of(part)}
    run = {layer for name in place.marks for layer in points.build.layers_of(name)}
    return not (wanted & layers.keys()) - run
