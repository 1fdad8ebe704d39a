"""What moves in a schedule, and when: streams, fetches, prefetches and collectives. Each line must name something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..diagnostics import Label, did_you_mean
from ..model.facts import same_operand
from ..records import frozen
from ..source import Span
from ..text import syntax as s
from . import collectives, storing
from .context import Draft
from .ir import Fetch, Form, Gather, Group, Overlap, Point, Prefetch, Reduce, Store, Stream
from .options import BYTES, count, options


@frozen
class Movement:
    """What a schedule moves, by kind."""

    streams: tuple[Stream, ...]
    fetches: tuple[Fetch, ...]
    prefetches: tuple[Prefetch, ...]
    gathers: tuple[Gather, ...]
    reduces: tuple[Reduce, ...]
    overlaps: tuple[Overlap, ...]
    forms: tuple[Form, ...]
    stores: tuple[Store, ...]


def movement(declared: s.Schedule, draft: Draft) -> Movement:
    """Every line that moves something, in the order of the text."""
    kinds = (Stream, Fetch, Prefetch, Gather, Reduce, Overlap, Form, Store)
    lines: dict[type, list[Any]] = {kind: [] for kind in kinds}
    streamed: dict[str, s.Name] = {}
    makers: dict[type, Callable[[Any], list[Any]]] = {
        s.Stream: lambda i: [_stream(i, streamed, draft)],
        s.Fetch: lambda i: [_fetch(i, draft)],
        s.Prefetch: lambda i: [_prefetch(i, draft)],
        s.Gather: lambda i: [collectives.gather(i, draft)],
        s.Reduce: lambda i: collectives.reduce(i, draft),
        s.Form: lambda i: [collectives.form(i, draft)],
        s.Store: lambda i: storing.store(i, draft),
    }
    for item in declared.items:
        for line in makers.get(type(item), _nothing)(item):
            if line is not None:
                lines[type(line)].append(line)
    collectives.no_sums(lines[Reduce], draft)
    for item in declared.items:
        if isinstance(item, s.Overlap):
            line = collectives.overlap(item, lines[Gather], lines[Reduce], draft)
            if line is not None:
                lines[Overlap].append(line)
    _twice(lines, draft)
    _moved_already(lines[Prefetch], lines[Stream], draft)
    return Movement(*(tuple(items) for items in lines.values()))


def _nothing(item: object) -> list[Any]:
    return []


def _moved_already(prefetches: list[Prefetch], streams: list[Stream], draft: Draft) -> None:
    """A weight is prefetched only where neither a stream nor the routes move it."""
    carried = {w: g.span for stream in streams for _, groups in stream.lines for g in groups for w in g.weights}
    routed = {w: part for part, weights in draft.facts.experts.items() for w in weights}
    for prefetch in prefetches:
        if prefetch.kind == "weight" and prefetch.what in carried:
            draft.sink.report(
                "E202",
                f"a stream moves `{prefetch.what}` already",
                prefetch.span,
                others=(Label(carried[prefetch.what], "here"),),
            )
        elif prefetch.kind == "weight" and prefetch.what in routed:
            draft.sink.report(
                "E208",
                f"routes choose `{prefetch.what}` during the step, so it cannot be prefetched",
                prefetch.span,
                helps=(f"write `fetch {routed[prefetch.what]}.experts`",),
            )


def _twice(lines: dict[type, list[Any]], draft: Draft) -> None:
    keys: dict[type, Callable[[Any], Any]] = {
        Fetch: lambda f: f.part,
        Prefetch: lambda p: (p.kind, p.what),
        Reduce: lambda r: r.value,
        Form: lambda f: f.part,
        Store: lambda t: t.weight,
    }
    for kind, key in keys.items():
        _once([(key(item), item.span) for item in lines[kind]], draft)
    _once([(value, g.span) for g in lines[Gather] for value in dict.fromkeys(g.values)], draft)
    _once([(weight, g.span) for o in lines[Overlap] for g in o.groups for weight in g.weights], draft)
    for prefetch in lines[Prefetch]:
        _once([((p.relation, p.what), p.span) for p in prefetch.points], draft)


def _once(named: list[tuple[Any, Span]], draft: Draft) -> None:
    first: dict[Any, Span] = {}
    for key, span in named:
        if key in first:
            draft.sink.report("E202", "this is given twice", span, others=(Label(first[key], "first here"),))
        first.setdefault(key, span)


def _is_scope(name: s.Name, draft: Draft) -> bool:
    if name.text in draft.facts.bodies:
        return True
    draft.sink.report(
        "E204", f"unknown part or step `{name.text}`", name.span, helps=did_you_mean(name.text, draft.facts.bodies)
    )
    return False


def _stream(item: s.Stream, streamed: dict[str, s.Name], draft: Draft) -> Stream | None:
    given = options(tuple(i for i in item.items if isinstance(i, s.Option)), ("slots", "slot"), draft)
    for needed in ("slots", "slot"):
        if needed not in given:
            draft.sink.report("E206", f"stream `{item.name.text}` lacks `{needed}`", item.name.span)
    slots, slot = count(given.get("slots"), {"": 1}, draft), count(given.get("slot"), BYTES, draft)
    lines: dict[str, tuple[Group, ...]] = {}
    for line in item.items:
        if not isinstance(line, s.StreamLine) or not _is_scope(line.part, draft):
            continue
        part = line.part.text
        if part in lines:
            draft.sink.report("E202", f"`{part}` is listed twice", line.span)
            continue
        groups = [_group(g, part, draft) for g in line.groups]
        for written in line.groups:
            for name in written.weights:
                key = f"{part}:{name.text}"
                if key in streamed:
                    draft.sink.report(
                        "E202",
                        f"`{name.text}` is streamed twice",
                        name.span,
                        others=(Label(streamed[key].span, "first here"),),
                    )
                streamed.setdefault(key, name)
        lines[part] = tuple(g for g in groups if g is not None)
    if not lines:
        draft.sink.report("E207", f"stream `{item.name.text}` has no weights", item.name.span)
    if slots is None or slot is None:
        return None
    return Stream(item.name.text, slots, slot, tuple(lines.items()), item.span, given["slots"].span, given["slot"].span)


def _group(item: s.Group, part: str, draft: Draft) -> Group | None:
    """Weights of one operand, each a matrix that is multiplied at this place and chosen before the model runs."""
    names: list[str] = []
    operands = []
    for name in item.weights:
        weight = draft.weight(name, part)
        if weight is None:
            continue
        products = [p for p in draft.facts.products_of(weight) if p.scope == part]
        if not products:
            draft.sink.report(
                "E208",
                f"`{part}` has no product with `{weight}`",
                name.span,
                others=(Label(draft.model.weights[weight].span, "declared here"),),
                helps=("vectors are fetched by `prefetch vectors`",)
                if len(draft.model.weights[weight].shape) == 1
                else (),
            )
            continue
        if products[0].in_experts:
            draft.sink.report(
                "E208",
                f"routes choose `{weight}` during the step, so a stream cannot know its order",
                name.span,
                helps=(f"write `fetch {part}.experts`",),
            )
            continue
        names.append(weight)
        operands.append((name, products[0].operand))
    for name, operand in operands[1:]:
        if not same_operand(operands[0][1], operand):
            draft.sink.report(
                "E209",
                f"`{operands[0][0].text}` and `{name.text}` are not fused: their operands differ",
                item.span,
                others=(
                    Label(operands[0][1].span, "operand of the first"),
                    Label(operand.span, f"operand of `{name.text}`"),
                ),
            )
    return Group(tuple(names), item.span) if names else None


def _fetch(item: s.Fetch, draft: Draft) -> Fetch | None:
    given = options(item.options, ("slots",), draft)
    slots = count(given.get("slots"), {"": 1}, draft)
    part, _, what = item.what.text.partition(".")
    if what != "experts" or part not in draft.facts.experts:
        known = [f"{p}.experts" for p in draft.facts.experts]
        draft.sink.report(
            "E204",
            f"routes do not choose `{item.what.text}`",
            item.what.span,
            helps=did_you_mean(item.what.text, known),
        )
        return None
    return Fetch(part, slots or 1, item.span)


def _point(point: s.Point, draft: Draft) -> Point | None:
    text, relation = point.name.text, point.relation or "at"
    head, _, tail = text.partition(".")
    if (relation == "previous" and text in ("part", "layer")) or (
        relation == "at" and tail == "start" and head in draft.facts.bodies
    ):
        return Point(relation, text, point.span)
    if relation == "at":
        draft.sink.report(
            "E210",
            f"`{text}` is not a point in time",
            point.span,
            notes=(
                "points are `P.start`, `before P.value`, `after P.value`, `previous P.value`, "
                "`previous part` and `previous layer`",
            ),
            helps=(f"write `after {text}`",) if text in draft.facts.values else (),
        )
        return None
    if text in draft.facts.values:
        return Point(relation, text, point.span)
    products = {f"{p.scope}.{p.weight.split('.')[-1]}" for p in draft.facts.products}
    if text in products:
        return Point(relation, text, point.span)
    draft.value(point.name)
    return None


def _prefetch(item: s.Prefetch, draft: Draft) -> Prefetch | None:
    given = options(item.options, ("tile", "slots"), draft)
    points = tuple(p for p in (_point(p, draft) for p in item.points) if p is not None)
    kind, what = _prefetched(item.what, draft)
    tile = count(given.get("tile"), {"tokens": 1}, draft)
    slots = count(given.get("slots"), {"": 1}, draft)
    if kind is None:
        return None
    if kind != "cache" and given:
        draft.sink.report("E206", "only a cache is prefetched by tiles", next(iter(given.values())).span)
    elif kind == "cache" and tile is None and "tile" not in given:
        draft.sink.report(
            "E206", "a cache is prefetched by tiles", item.what.span, helps=("write `(tile = 256 tokens, slots = 3)`",)
        )
    return Prefetch(kind, what, points, tile, slots, item.span)


def _prefetched(name: s.Name, draft: Draft) -> tuple[str | None, str]:
    if name.text == "vectors":
        return "vectors", "vectors"
    part, _, what = name.text.partition(".")
    kinds = {st.kind for st in draft.model.states.values() if st.part == part}
    if what in ("state", "cache") and part in draft.model.parts:
        if what in kinds:
            return what, part
        draft.sink.report("E204", f"part `{part}` has no {what}", name.span)
        return None, ""
    weight = draft.weight(name)
    return (None, "") if weight is None else ("weight", weight)
