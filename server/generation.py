"""One HTTP request's sequences under way: what the engine's thread makes crosses to the event loop here."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from attrs import field, frozen

from .answer import Answer, Delta, Finish, Limits, merge
from .engine import Engine
from .sampling import Sampling
from .scores import Scored
from .sequence import Running, Task


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
    """What choice `index` gained. The first part of a choice has the prompt's scores, if they were asked for."""

    index: int
    delta: Delta
    prompt: tuple[Scored, ...] = ()


class _Choice:
    """The engine's side of one choice."""

    def __init__(self, index: int, answer: Answer, put: Callable[[Part | Exception], None]) -> None:
        self._index = index
        self._answer = answer
        self._put = put
        self._prompt: list[Scored] = []

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
        self._put(Part(self._index, delta, tuple(self._prompt)))
        self._prompt.clear()


class Generation:
    """The choices of one request: start it, read its parts, and always `cancel` in the end (harmless when it is over).

    To be used on one event loop. `start` raises what `Engine.submit` raises.
    """

    def __init__(self, engine: Engine, name: str, plans: Sequence[Plan], piece: Callable[[int], bytes]) -> None:
        self._engine = engine
        self._left = len(plans)
        self._runs: list[Running] = []
        self._loop = asyncio.get_running_loop()
        self._items: deque[Part | Exception] = deque()
        self._ready = asyncio.Event()
        self._told = False
        self._tasks = [self._task(name, index, plan, piece) for index, plan in enumerate(plans)]

    def _task(self, name: str, index: int, plan: Plan, piece: Callable[[int], bytes]) -> Task:
        return Task(
            id=f"{name}/{index}",
            prompt=plan.prompt,
            sampling=plan.sampling,
            max_tokens=plan.limits.max_tokens,
            sink=_Choice(index, Answer(plan.limits, piece), self._put),
            logprobs=plan.logprobs,
            prompt_logprobs=plan.prompt_logprobs,
        )

    def start(self) -> None:
        """Queue all choices, or none."""
        self._runs = self._engine.submit(self._tasks)

    def cancel(self) -> None:
        """Drop what is not finished."""
        if self._left:
            self._engine.cancel(self._runs)

    def _put(self, item: Part | Exception) -> None:
        """Engine's thread: hand over an item. Never waits; wakes the loop once for all that it has not fetched."""
        self._items.append(item)
        if not self._told:
            self._told = True
            try:
                self._loop.call_soon_threadsafe(self._ready.set)
            except RuntimeError:  # the loop is closed: nobody is left to read
                self._engine.cancel(self._runs)

    async def parts(self, idle: float | None = None) -> AsyncIterator[list[Part]]:
        """All that came since the last turn, at most one part a choice, until every choice is finished.

        With `idle`, an empty list after so many seconds without anything. Raises what a sequence failed with.
        """
        while self._left:
            try:
                await asyncio.wait_for(self._ready.wait(), idle)
            except TimeoutError:
                yield []
                continue
            self._ready.clear()
            self._told = False
            yield self._fetch()

    def _fetch(self) -> list[Part]:
        fetched: dict[int, list[Part]] = {}
        while self._items:
            item = self._items.popleft()
            if isinstance(item, Exception):
                if not fetched:
                    raise item
                self._items.appendleft(item)  # what came before it goes first
                self._ready.set()
                break
            fetched.setdefault(item.index, []).append(item)
            self._left -= item.delta.finish is not None
        return [join(parts) for parts in fetched.values()]


def join(parts: Sequence[Part]) -> Part:
    """Consecutive parts of one choice as one."""
    return Part(parts[0].index, merge(part.delta for part in parts), parts[0].prompt)
