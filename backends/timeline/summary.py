"""What a simulated step says: its time, what bounds each part, where the core waits, and what that costs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from attrs import evolve, frozen

from ...dsl.program import ir as p
from ...dsl.targets.target import Target
from ..pallas.cycles.bundles import Bundles
from .actions import Action, Await, Collect, Where
from .counted import Counted
from .simulate import Span, Trace, simulate
from .unroll import count, unroll

_MOST = 12  # waits of which it is simulated what they cost
_FULL = 0.85  # of a part's time that HBM is busy, from which on HBM bounds it


@frozen
class Share:
    """Seconds of a step spent in one scope, all its `runs` together.

    `mxu` and `vpu` compute, `hbm` waits while HBM is busy, `link` waits for messages, `latency` for a transfer while
    HBM is idle. `idle` is how long HBM was idle, whatever the core did; `bytes` is what was read or written for it.
    """

    name: str
    runs: int
    seconds: float
    mxu: float
    vpu: float
    hbm: float
    link: float
    latency: float
    idle: float
    bytes: int = 0

    @property
    def bound(self) -> str:
        """What bounds it: `HBM`, `links`, `matrix unit`, `vector unit` or `latency`."""
        if self.seconds and 1 - self.idle / self.seconds >= _FULL:
            return "HBM"
        parts = {
            "HBM": self.hbm,
            "links": self.link,
            "matrix unit": self.mxu,
            "vector unit": self.vpu,
            "latency": self.latency,
        }
        return max(parts, key=lambda name: parts[name])


@frozen
class Stall:
    """All waits for one thing: how often and how long the core stood, and how long of it HBM did as well.

    `where` is one of them. `saves` is by how much the step would be shorter were the wait overlapped whole; `None`
    where that was not tried,
    or where it is for bytes that must come first.
    """

    where: Where
    kind: str
    times: int
    seconds: float
    idle: float
    saves: float | None = None

    @property
    def scope(self) -> str:
        """Of the waits."""
        return self.where.scope

    @property
    def what(self) -> str:
        """What is waited for, in words."""
        return self.where.what


@frozen
class Prediction:
    """A step of `rows` rows, each at `position`; predicted.

    `counts` are scopes that take the bundles which the compiler scheduled; others are estimated by op. `floor` is the
    time of its bytes at the full rate. `parts` are scopes, `layers` kinds of layers.
    """

    program: p.Program
    target: Target
    position: int
    step: float
    floor: float
    bytes: int
    busy: float
    parts: tuple[Share, ...]
    layers: tuple[Share, ...]
    stalls: tuple[Stall, ...]
    trace: Trace
    counts: tuple[Counted, ...] = ()

    @property
    def compute(self) -> str:
        """Where the time of computing comes from."""
        return "counted from the compiler's schedule" if self.counts else "estimated by op"

    @property
    def used(self) -> float:
        """Of the step, the time that its bytes take at least."""
        return self.floor / self.step


def predict(
    program: p.Program, position: int | None = None, savings: bool = True, bundles: Bundles | None = None
) -> Prediction:
    """Simulate a step; rows have `position` earlier tokens, by default and at most what the context has room for.

    `bundles` are those that were counted of the Program's kernel, if they were.
    """
    target = program.schedule.target
    most = program.schedule.context - 1
    at = most if position is None else min(position, most)
    counts = count(program, target, at, bundles) if bundles is not None else ()
    actions = list(unroll(program, target, at, counts))
    trace = simulate(actions, target)
    stalls = _stalls(trace)
    if savings:
        stalls = [_tried(stall, actions, trace, target) if i < _MOST else stall for i, stall in enumerate(stalls)]
        stalls.sort(key=lambda stall: -(stall.saves or 0.0))
    floor = trace.bytes / target.memory.hbm_rate.value
    return Prediction(
        program,
        target,
        at,
        trace.step,
        floor,
        trace.bytes,
        trace.busy,
        _parts(program, trace),
        _layers(program, trace),
        tuple(stalls),
        trace,
        counts,
    )


def _parts(program: p.Program, trace: Trace) -> tuple[Share, ...]:
    by_scope: dict[str, list[Span]] = defaultdict(list)
    moved: Counter[str] = Counter()
    for span in trace.spans:
        by_scope[span.where.scope].append(span)
    for transfer in trace.transfers:
        moved[transfer.where.scope] += transfer.bytes
    return tuple(_share(scope, program.times(scope), spans, moved[scope]) for scope, spans in by_scope.items())


def _layers(program: p.Program, trace: Trace) -> tuple[Share, ...]:
    kinds: dict[tuple[str, ...], list[Span]] = defaultdict(list)
    for span in trace.spans:
        if span.where.layer is not None:
            kinds[program.phase_of(span.where.scope).layer_parts[span.where.layer]].append(span)
    count = Counter(parts for phase in program.phases for parts in phase.layer_parts.values())
    return tuple(_share(", ".join(kind), count[kind], spans) for kind, spans in kinds.items())


def _share(name: str, runs: int, spans: Sequence[Span], moved: int = 0) -> Share:
    kinds: dict[str, float] = defaultdict(float)
    idle = 0.0
    for span in spans:
        idle += max(0.0, span.seconds - span.busy)
        if span.kind in ("mxu", "vpu", "link"):
            kinds[span.kind] += span.seconds
        else:
            kinds["hbm"] += span.busy
            kinds["latency"] += max(0.0, span.seconds - span.busy)
    return Share(
        name,
        runs,
        sum(span.seconds for span in spans),
        kinds["mxu"],
        kinds["vpu"],
        kinds["hbm"],
        kinds["link"],
        kinds["latency"],
        idle,
        moved,
    )


def _stalls(trace: Trace) -> list[Stall]:
    """Longest idle time of HBM first: bytes that HBM carries meanwhile would have to come anyway."""
    by_wait: dict[tuple[str, object, str], list[Span]] = defaultdict(list)
    for span in trace.spans:
        if span.kind not in ("mxu", "vpu"):
            by_wait[span.where.scope, span.where.subject, span.kind].append(span)
    stalls = []
    for (_, _, kind), spans in by_wait.items():
        seconds = sum(span.seconds for span in spans)
        runs = len({span.where.layer for span in spans})
        stalls.append(Stall(spans[0].where, kind, runs, seconds, seconds - sum(span.busy for span in spans)))
    return sorted(stalls, key=lambda stall: (-stall.idle, -stall.seconds))


def _tried(stall: Stall, actions: list[Action], trace: Trace, model: Target) -> Stall:
    """A tape's tiles cannot come earlier than HBM brings them, nor states move before the step is over."""
    if stall.kind in ("tape", "commit"):
        return stall
    free = frozenset({(stall.scope, stall.where.subject)})
    waits = (Collect,) if stall.kind == "link" else (Await,)
    if not any(isinstance(action, waits) and (action.where.scope, action.where.subject) in free for action in actions):
        return stall
    return evolve(stall, saves=max(0.0, trace.step - simulate(actions, model, free, keep=False).step))
