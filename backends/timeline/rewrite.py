"""A schedule's text with other choices: only what differs is written anew, comments and the rest stay as they are."""

from __future__ import annotations

from ...dsl.collectives.collective import CollectiveKind, Wire
from ...dsl.schedule.ir import Fetch, Prefetch, Reduce, Schedule, Stream
from ...dsl.source import Source
from ...dsl.text import syntax as s
from ...dsl.text.format import format_source

type _Edit = tuple[int, int, str]


def rewrite(source: Source, declared: s.Schedule, old: Schedule, new: Schedule) -> str:
    """The whole file with `new` in the place of `old`, which `declared` is the text of, in canonical layout.

    Only what a search changes is written: streams, slots, tiles, points, and how sums are completed.
    """
    edits: list[_Edit] = []
    added: list[str] = []
    known = {stream.name: stream for stream in old.streams}
    for stream in new.streams:
        if stream.name in known:
            edits += _slots(known[stream.name], stream)
        else:
            added += _stream(stream)
    _fetches(declared, old, new, edits, added)
    _prefetches(declared, old, new, edits, added)
    _reduces(declared, old, new, edits, added)
    if added:
        end = declared.span.end - 1  # before the closing brace
        edits.append((end, end, "".join(f"  {line}\n" for line in added)))
    text = source.text
    for start, stop, words in sorted(edits, reverse=True):
        text = text[:start] + words + text[stop:]
    formatted = format_source(Source(source.name, text))
    return formatted if isinstance(formatted, str) else text


def _slots(old: Stream, new: Stream) -> list[_Edit]:
    if old.slots == new.slots:
        return []
    words = old.slots_span.text
    return [(old.slots_span.start, old.slots_span.end, words.replace(str(old.slots), str(new.slots)))]


def _stream(stream: Stream) -> list[str]:
    """A stream that is new."""
    lines = [f"stream {stream.name} {{", f"  slots = {stream.slots}", f"  slot = {stream.slot // 1024} KiB"]
    for part, groups in stream.lines:
        said = [", ".join(weight.removeprefix(f"{part}.") for weight in group.weights) for group in groups]
        listed = ", ".join(f"({x})" if "," in x else x for x in said)
        lines.append(f"  {part} : {listed}")
    return [*lines, "}"]


def _fetches(declared: s.Schedule, old: Schedule, new: Schedule, edits: list[_Edit], added: list[str]) -> None:
    known = {line.part for line in old.fetches}
    added += [_fetch(line) for line in new.fetches if line.part not in known]
    for item in declared.items:
        if isinstance(item, s.Fetch):
            part = item.what.text.partition(".")[0]
            line = next(x for x in new.fetches if x.part == part)
            if _changed(item.span.text, words := _fetch(line)):
                edits.append((item.span.start, item.span.end, words))


def _fetch(line: Fetch) -> str:
    return f"fetch {line.part}.experts (slots = {line.slots})"


def _prefetches(declared: s.Schedule, old: Schedule, new: Schedule, edits: list[_Edit], added: list[str]) -> None:
    before = {(x.kind, x.what): x for x in old.prefetches}
    items = {(item.span.start, item.span.end): item for item in declared.items if isinstance(item, s.Prefetch)}
    for line in new.prefetches:
        was = before.get((line.kind, line.what))
        if was is None:
            added.append(_prefetch(line))
        elif was != line and (was.span.start, was.span.end) in items:
            edits.append((was.span.start, was.span.end, _prefetch(line)))


def _prefetch(line: Prefetch) -> str:
    name = {"vectors": "vectors", "weight": line.what}.get(line.kind, f"{line.what}.{line.kind}")
    points = ", ".join(x.what if x.relation == "at" else f"{x.relation} {x.what}" for x in line.points)
    options = [f"tile = {line.tile} tokens"] if line.tile is not None else []
    options += [f"slots = {line.slots}"] if line.slots is not None else []
    return f"prefetch {name} at {points}" + (f" ({', '.join(options)})" if options else "")


def _reduces(declared: s.Schedule, old: Schedule, new: Schedule, edits: list[_Edit], added: list[str]) -> None:
    """A statement of several values becomes several where they differ now."""
    after = {x.value: x for x in new.reduces}
    for item in declared.items:
        if not isinstance(item, s.Reduce):
            continue
        own = [x for x in old.reduces if item.span.start <= x.span.start and x.span.end <= item.span.end]
        if all(after.get(x.value) == x for x in own):
            continue
        left = [after[x.value] for x in own if x.value in after]
        edits.append((item.span.start, item.span.end, "\n  ".join(_lines(left))))
    known = {x.value for x in old.reduces}
    added += _lines([x for x in new.reduces if x.value not in known])


def _lines(reduces: list[Reduce]) -> list[str]:
    together: dict[tuple[CollectiveKind, Wire], list[str]] = {}
    for line in reduces:
        together.setdefault((line.by, line.wire), []).append(line.value)
    return [f"reduce {', '.join(values)} (by = {by}, wire = {wire})" for (by, wire), values in together.items()]


def _changed(old: str, new: str) -> bool:
    return "".join(old.split()) != "".join(new.split())
