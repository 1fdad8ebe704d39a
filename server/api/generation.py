"""One HTTP request's sequences under way: what the engine's thread makes crosses to the event loop here."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from attrs import field, frozen

from ..engine.engine import Engine
from ..engine.sampling_params import Sampling
from ..engine.scores import Scored
from ..engine.sequence import Running, Task
from ..text.answer import Answer, Delta, Finish, Limits, PieceOf, merge


@frozen
class Plan:
    """What is asked for one choice of the response; `text` is the prompt as it came, None for ids."""

    prompt: tuple[int, ...] = field(repr=False)
    sampling: Sampling
    limits: Limits
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    text: str | None = field(default=None, repr=False)


@frozen
class Part:
    """What choice `index` gained. The first part of a choice has the prompt's scores, if they were asked for.

    `cached` of the prompt's tokens were known from an earlier prompt.
    """

    index: int
    delta: Delta
    prompt: tuple[Scored, ...] = ()
    cached: int = 0


class _Choice:
    """The engine's side of one choice."""

    def __init__(self, index: int, answer: Answer, put: Callable[[Part | Exception], None]) -> None:
        self._index = index
        self._answer = answer
        self._put = put
        self._prompt: list[Scored] = []
        self._cached = 0
        self.finish: str | None = None

    def began(self, cached: int) -> None:
        self._cached = cached

    def scored(self, prompt: Sequence[Scored]) -> None:
        self._prompt += prompt

    def emitted(self, tokens: Sequence[Scored]) -> bool:
        self._pass(self._answer.push(tokens))
        return self._answer.finished

    def ended(self) -> None:
        self._pass(Delta(finish=Finish.LENGTH))

    def failed(self, error: Exception) -> None:
        self._put(error)

    def _pass(self, delta: Delta) -> None:
        self.finish = delta.finish
        self._put(Part(self._index, delta, tuple(self._prompt), self._cached))
        self._prompt.clear()


class Wakeups:
    """Wakes event loops for what the engine has made: once a pass, however many requests are in it."""

    def __init__(self) -> None:
        self._due: deque[Generation] = deque()

    def add(self, generation: Generation) -> None:
        """Any thread: there is something for `generation`, which `flush` will tell it."""
        self._due.append(generation)

    def flush(self) -> None:
        """Any thread: wake all that are due. Never waits."""
        due: dict[asyncio.AbstractEventLoop, list[Generation]] = {}
        while self._due:
            generation = self._due.popleft()
            due.setdefault(generation.loop, []).append(generation)
        for loop, woken in due.items():
            try:
                loop.call_soon_threadsafe(_wake, woken)
            except RuntimeError:  # the loop is closed: nobody is left to read
                for generation in woken:
                    generation.cancel()


def _wake(woken: list[Generation]) -> None:
    for generation in woken:
        generation.wake()


class Generation:
    """The choices of one request: start it, read its parts, and always `cancel` in the end (harmless when it is over).

    To be used on one event loop. `wakeups` is what the engine flushes, and `seconds` how long all of it may take.
    """

    def __init__(
        self,
        engine: Engine,
        wakeups: Wakeups,
        name: str,
        plans: Sequence[Plan],
        piece: PieceOf,
        seconds: float = math.inf,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._engine = engine
        self._wakeups = wakeups
        self._left = len(plans)
        self._runs: list[Running] = []
        self._items: deque[Part | Exception] = deque()
        self._waiter: asyncio.Future[bool] | None = None
        self._signalled = False
        self._deadline = time.monotonic() + seconds
        self._tasks = [self._task(name, index, plan, piece) for index, plan in enumerate(plans)]

    def _task(self, name: str, index: int, plan: Plan, piece: PieceOf) -> Task:
        return Task(
            id=f"{name}/{index}",
            prompt=plan.prompt,
            sampling=plan.sampling,
            max_tokens=plan.limits.max_tokens,
            sink=_Choice(index, Answer(plan.limits, piece), self._put),
            logprobs=plan.logprobs,
            prompt_logprobs=plan.prompt_logprobs,
            deadline=self._deadline,
        )

    def start(self) -> None:
        """Queue all choices, or none. Raises what `Engine.submit` raises."""
        self._runs = self._engine.submit(self._tasks)

    def cancel(self) -> None:
        """Drop what is not finished."""
        if self._left:
            self._engine.cancel(self._runs)

    def _put(self, item: Part | Exception) -> None:
        """Engine's thread: hand over an item, which `Wakeups.flush` tells of unless the loop knows of one already."""
        self._items.append(item)
        if not self._signalled:
            self._signalled = True
            self._wakeups.add(self)

    def wake(self) -> None:
        """There is something to fetch."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    async def parts(self, idle: float | None = None) -> AsyncIterator[list[Part]]:
        """All that came since the last turn, at most one part a choice, until every choice is finished.

        With `idle`, an empty list after so many seconds without anything. Raises what a sequence failed with.
        """
        alarm = None if idle is None else _Alarm(self.loop, idle, self._nothing)
        try:
            while self._left:
                if not self._items:
                    self._waiter = self.loop.create_future()
                    # What comes from here on wakes the waiter; what came just before is seen here.
                    self._signalled = False
                    waited = not self._items and not await self._waiter
                    if not self._items:
                        if waited:
                            yield []
                        continue
                self._signalled = False
                yield self._fetch()
                if alarm is not None:
                    alarm.put_off()
        finally:
            if alarm is not None:
                alarm.stop()

    def _nothing(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(False)

    def _fetch(self) -> list[Part]:
        fetched: dict[int, list[Part]] = {}
        while self._items:
            item = self._items.popleft()
            if isinstance(item, Exception):
                if not fetched:
                    raise item
                self._items.appendleft(item)  # what came before it goes first
                break
            fetched.setdefault(item.index, []).append(item)
            self._left -= item.delta.finish is not None
        return [join(parts) for parts in fetched.values()]


class _Alarm:
    """Calls `ring` every `seconds` in which it is not put off, with few timers for many times that it is."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, ring: Callable[[], None]) -> None:
        self._loop, self._seconds, self._ring = loop, seconds, ring
        self._due = loop.time() + seconds
        self._timer = loop.call_at(self._due, self._rings)

    def put_off(self) -> None:
        self._due = self._loop.time() + self._seconds

    def stop(self) -> None:
        self._timer.cancel()

    def _rings(self) -> None:
        if self._loop.time() >= self._due:
            self._ring()
            self.put_off()
        self._timer = self._loop.call_at(self._due, self._rings)


def join(parts: Sequence[Part]) -> Part:
    """Consecutive parts of one choice as one."""
    if len(parts) == 1:
        return parts[0]
    return Part(parts[0].index, merge(part.delta for part in parts), parts[0].prompt, parts[0].cached)
