"""The compiler's schedule of a kernel, as it dumps it: bundles, and the loops and branches that they form."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from attrs import field, frozen

_BUNDLE = re.compile(r"^ *(?:0x[0-9a-f]+|0) +(?:[A-Z]{2} *)*: *>* *\{", re.MULTILINE)
_ENTRY = re.compile(r"entry bundle: %(\S+) = (\S+)\(")
_STARTS = re.compile(r"Start(?:/End empty)? region (\d+)")
_ENDS = re.compile(r"End region (\d+)")
_BRANCH = re.compile(r"sbr\.rel (?:\((!?)(%\w+)\) )?target = \$region(\d+)")
_SCOPE = re.compile(r"TraceMeStart\((.*?)\)")
_LABEL = re.compile(r" *\w+ +[A-Z]{2}")
_EMPTY = re.compile(r"\{(?: %\d+ = vtrace \d+ )?\}")
_EXIT = r"{} = scmp\.ge\.s32\.totalorder (?:\(!?%\w+\), )?(%\w+), (%\w+|-?\d+)"
_STEP = r"{} = sadd\.s32 (?:\(!?%\w+\), )?(\d+), (%\w+)"
_PHI = r"{} = sphi (%\w+|-?\d+), (%\w+)"
_COPY = r"{} = smov\.u32 (?:\(!?%\w+\), )?(%\w+|-?\d+)"
# A branch takes effect after so many bundles on every chip that we know of; they run whichever way it goes.
_DELAY = 6


@frozen
class Region:
    """A part of a kernel that runs as often as it is entered: the whole call, a loop's body, or a branch.

    `first` and `last` are its bundles; `own` how many of them are its own, not those of a region inside. `trips` is how
    often a loop's body runs each time, if the schedule says so. `scopes` are the named scopes that begin in it.
    """

    kind: Literal["call", "loop", "branch"]
    first: int
    last: int
    trips: int | None = None
    own: int = 0
    scopes: tuple[str, ...] = ()
    inside: tuple[Region, ...] = ()

    @property
    def shape(self) -> tuple[object, ...]:
        """What two schedules of one kernel have in common."""
        return (self.kind, self.trips, tuple(region.shape for region in self.inside))

    @property
    def all(self) -> tuple[Region, ...]:
        """The region and those inside, in order."""
        return (self, *(each for region in self.inside for each in region.all))


@frozen
class _Span:
    """A region before it has a place in the tree; its first `shared` bundles belong to the region round it."""

    kind: Literal["call", "loop", "branch"]
    first: int
    last: int
    trips: int | None = None
    shared: int = 0
    inside: list[_Span] = field(factory=list)


def entry(text: str) -> tuple[str, str]:
    """The name and the opcode of the HLO instruction that a schedule is of; empty if there is none."""
    match = _ENTRY.search(text)
    return (match[1], match[2].rpartition(" ")[2]) if match else ("", "")


def regions(text: str) -> Region:
    """Find the loops and branches of one schedule (`...-final_bundles.txt`)."""
    starts = [match.start() for match in _BUNDLE.finditer(text)]
    bundles = [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]
    begin = {name: at for at, bundle in enumerate(bundles) for name in _STARTS.findall(bundle)}
    end = {name: at for at, bundle in enumerate(bundles) for name in _ENDS.findall(bundle)}
    loops: dict[str, _Span] = {}
    branches: list[_Span] = []
    for at, bundle in enumerate(bundles):
        for unless, condition, target in _BRANCH.findall(bundle):
            first = begin.get(target, at)
            if first > at + 1:
                delay = _delay(bundles, at, first)
                branches.append(_Span("branch", at + 1, first - 1, None, delay))
            elif target in begin:
                last = _after(bundles, (first, max(at, end.get(target, at))), at, condition)
                trips = _trips(text, condition) if unless else None
                loops[target] = _Span("loop", first, last, trips)
    root = _Span("call", 0, len(bundles) - 1)
    _nest(root, [*loops.values(), *branches])
    scopes = [(at, name) for at, bundle in enumerate(bundles) for name in _SCOPE.findall(bundle)]
    return _region(root, 0, scopes)


def _delay(bundles: list[str], at: int, target: int) -> int:
    """How many bundles after a branch run whichever way it goes: a new block begins with a label."""
    for count in range(_DELAY + 1):
        if at + 1 + count >= target or _LABEL.match(bundles[at + 1 + count]):
            return count
    return _DELAY


def _after(bundles: list[str], span: tuple[int, int], branch: int, condition: str) -> int:
    """The last bundle of a loop: those in the delay of its branch show its depth, are empty, or await the exit."""
    first, last = span
    depth = _depth(bundles[first])
    while last < min(branch + _DELAY, len(bundles) - 1):
        after = bundles[last + 1]
        late = _depth(after) >= depth or f"({condition})" in after or _EMPTY.search(after)
        if _LABEL.match(after) or not late:
            break
        last += 1
    return last


def _depth(bundle: str) -> int:
    return bundle[: bundle.index("{")].count(">")


def _trips(text: str, condition: str) -> int | None:
    """How often the body of a loop with this exit condition runs, if step and distance are constants."""
    leave = re.search(_EXIT.format(re.escape(condition)), text)
    step = re.search(_STEP.format(re.escape(leave[1])), text) if leave else None
    phi = re.search(_PHI.format(re.escape(step[2])), text) if step else None
    if leave is None or step is None or phi is None:
        return None
    (base, start), (other, bound) = _linear(text, phi[1]), _linear(text, leave[2])
    if base != other or int(step[1]) <= 0:
        return None
    return max(1, -(-(bound - start) // int(step[1])))


def _linear(text: str, name: str) -> tuple[str, int]:
    """A scalar register as another one (or none) plus a constant."""
    offset = 0
    for _ in range(8):  # copies of copies
        if not name.startswith("%"):
            return "", offset + int(name)
        if copied := re.search(_COPY.format(re.escape(name)), text):
            name = copied[1]
        elif added := re.search(_STEP.format(re.escape(name)), text):
            offset, name = offset + int(added[1]), added[2]
        else:
            break
    return name, offset


def _nest(root: _Span, spans: Iterable[_Span]) -> None:
    """Put each span into the smallest one that holds its beginning."""
    open_spans = [root]
    for span in sorted(spans, key=lambda s: (s.first, -s.last)):
        while span.first > open_spans[-1].last:
            open_spans.pop()
        if span.last > open_spans[-1].last:  # delays of two branches overlap
            span = _Span(span.kind, span.first, open_spans[-1].last, span.trips, span.shared, span.inside)
        open_spans[-1].inside.append(span)
        open_spans.append(span)


def _region(span: _Span, entered: int, scopes: list[tuple[int, str]]) -> Region:
    inside = tuple(_region(each, each.shared, scopes) for each in span.inside)
    nested = sum(each.last - each.first + 1 - each.shared for each in span.inside)
    names = tuple(
        name
        for at, name in scopes
        if span.first <= at <= span.last and not any(each.first <= at <= each.last for each in span.inside)
    )
    own = span.last - span.first + 1 - entered - nested
    return Region(span.kind, span.first, span.last, span.trips, own, names, inside)
