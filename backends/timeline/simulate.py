"""The simulation: one stream of actions, transfers that share the HBM path, messages on their way."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from attrs import define, field, frozen

from ...dsl.model.ir import Ref
from ...dsl.targets.target import Target
from .actions import Action, Await, Collect, Issue, Post, Run, Where


@frozen
class Span:
    """`start .. stop` in seconds: computing on a unit, or waiting for what; `busy` of it the HBM path was busy."""

    start: float
    stop: float
    kind: str
    where: Where
    busy: float = 0.0

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.stop - self.start


@frozen
class Transfer:
    """What went between HBM and VMEM: when it set out, when it arrived, when the core had waited for it."""

    start: float
    stop: float
    bytes: int
    lane: Ref | str
    where: Where
    taken: float


@frozen
class Message:
    """A round of a collective."""

    start: float
    stop: float
    number: int
    where: Where


@frozen
class Trace:
    """All that happened; `spans` follow one another without gaps. `step` is the last one's end."""

    step: float
    spans: tuple[Span, ...]
    transfers: tuple[Transfer, ...]
    messages: tuple[Message, ...]
    bytes: int
    busy: float


@frozen
class _Free:
    """Waits that cost nothing, in a simulation of what their overlap would save."""

    waits: frozenset[tuple[str, object]]

    def has(self, where: Where) -> bool:
        return (where.scope, where.subject) in self.waits


@define
class _Path:
    """HBM: transfers wait for their latency, then share the rate equally.

    `served` is how many bytes one that has always been there would have got; each one ends at its own mark of it.
    """

    rate: float
    latency: float
    now: float = 0.0
    busy: float = 0.0
    served: float = 0.0
    coming: list[tuple[float, int, object, int]] = field(factory=list)
    moving: list[tuple[float, int, object]] = field(factory=list)
    arrived: dict[object, float] = field(factory=dict)
    count: int = 0

    def issue(self, key: object, size: int, at: float) -> None:
        """A transfer sets out."""
        self.count += 1
        self.arrived.pop(key, None)
        heapq.heappush(self.coming, (at + self.latency, self.count, key, size))

    def run(self, until: float, key: object = None) -> float:
        """Let time pass until a time, or until a transfer has arrived; when that was."""
        while self.now < until:
            if key is not None and key in self.arrived:
                break
            next_start = self.coming[0][0] if self.coming else float("inf")
            next_end = float("inf")
            if self.moving:
                next_end = self.now + max(0.0, self.moving[0][0] - self.served) * len(self.moving) / self.rate
            then = min(next_start, next_end, until)
            if then == float("inf"):
                raise RuntimeError(f"nothing under way brings {key}")
            if self.moving:
                self.served += (then - self.now) * self.rate / len(self.moving)
                self.busy += then - self.now
            self.now = then
            if then == next_end:
                _, _, done = heapq.heappop(self.moving)
                self.arrived[done] = then
            elif then == next_start:
                _, count, begun, size = heapq.heappop(self.coming)
                heapq.heappush(self.moving, (self.served + size, count, begun))
        return self.now


def simulate(
    actions: Iterable[Action], target: Target, free: frozenset[tuple[str, object]] = frozenset(), keep: bool = True
) -> Trace:
    """Run the actions in order. `free` are waits, by place and subject, that cost nothing; `keep` the whole trace.

    Raises:
        RuntimeError: something is awaited that never set out.
    """
    path = _Path(target.memory.hbm_rate.value, target.memory.hbm_latency.value)
    unpaid, now, total = _Free(free), 0.0, 0
    spans: list[Span] = []
    messages: list[Message] = []
    issued: dict[object, tuple[float, Issue]] = {}
    transfers: list[Transfer] = []
    posted: dict[object, tuple[float, Post]] = {}

    def pass_until(then: float, kind: str, where: Where) -> None:
        nonlocal now
        if then > now:
            before = path.busy
            path.run(then)
            if keep:
                spans.append(Span(now, then, kind, where, path.busy - before))
            now = then

    for action in actions:
        match action:
            case Run():
                pass_until(now + action.seconds, action.unit, action.where)
            case Issue():
                path.issue(action.key, action.bytes, now)
                issued[action.key] = (now, action)
                total += action.bytes
            case Await():
                if action.key not in path.arrived and not unpaid.has(action.where):
                    if action.key not in issued:
                        raise RuntimeError(f"{action.where} waits for what never set out")
                    before, start = path.busy, now
                    now = path.run(float("inf"), action.key)
                    if keep and now > start:
                        spans.append(Span(start, now, action.kind, action.where, path.busy - before))
                start, issue = issued.pop(action.key)
                if keep:
                    stop = path.arrived.get(action.key, now)
                    transfers.append(Transfer(start, stop, issue.bytes, issue.lane, issue.where, now))
            case Post():
                posted[action.key] = (now, action)
            case Collect():
                start, post = posted.pop(action.key)
                if unpaid.has(action.where):
                    pass_until(now + action.between * len(post.rounds), "vpu", action.where)
                    continue
                for number, seconds in enumerate(post.rounds):
                    if keep:
                        messages.append(Message(start, start + seconds, number, post.where))
                    pass_until(start + seconds, "link", action.where)
                    pass_until(now + action.between, "vpu", action.where)
                    start = now
    path.run(now)
    return Trace(now, tuple(spans), tuple(transfers), tuple(messages), total, path.busy)
