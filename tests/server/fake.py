"""A decoder without a model: logits are a fixed function of everything that its row holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from attrs import frozen

from mks.dsl.decoder import StepResult


@frozen
class FakeSaved:
    """A kept row."""

    tokens: tuple[int, ...]

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def nbytes(self) -> int:
        return 1000 * self.length


@frozen
class FakeStep:
    """A step whose result comes from `end`, which is called once."""

    end: Callable[[], StepResult]

    def wait(self) -> StepResult:
        """As the protocol says, but for a second time."""
        return self.end()


def result(rows: int, logits: Mapping[int, np.ndarray], asked: Collection[int]) -> StepResult:
    """What a step gives of logits `[tokens, vocab]` by row: those of rows that were not asked for are not in it."""
    ids, finite = np.full((rows, 1), -1, np.int32), np.zeros((rows, 1), bool)
    for row, each in logits.items():
        ids[row, 0], finite[row, 0] = each[-1].argmax(), np.isfinite(each[-1].max())
    return StepResult(ids, finite, {row: logits[row] for row in asked})


class FakeDecoder:
    """Logits depend on all tokens in the row, so a mixed-up row, position or chunk changes the answer.

    Every call is checked against the protocol, and `calls` tells what came. `delay` is seconds a call takes, or a step
    after it was begun; `gate` is waited for before every step ends; `logits_of` replaces the function of the tokens.
    `fail_next` calls raise as they are made, and of `fail_waits` steps the wait does.
    """

    tokens_per_row, rewinds = 1, False

    def __init__(
        self,
        rows: int = 3,
        context: int = 256,
        vocab: int = 861,
        chunk: int = 16,
        *,
        delay: float = 0.0,
        logits_of: Callable[[Sequence[int]], np.ndarray] | None = None,
        cuts: bool = True,
    ) -> None:
        self.rows, self.context, self.vocab, self.chunk = rows, context, vocab, chunk
        self.delay = delay
        self.calls: list[tuple[str, tuple[int, ...]]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.fail_next = self.fail_waits = 0
        self.cuts = cuts
        self.unharmed = True
        self.fail_resets = 0
        self._logits_of = logits_of or self.hashed
        self._held: list[list[int]] = [[] for _ in range(rows)]
        self._busy = threading.Lock()

    def hashed(self, tokens: Sequence[int]) -> np.ndarray:
        """Noise that is the same for the same tokens."""
        return np.random.default_rng([len(tokens), *tokens]).standard_normal(self.vocab, dtype=np.float32) * 3

    def prefill(self, row: int, ids: Sequence[int], start: int, last_only: bool = False) -> np.ndarray:
        """As the protocol says."""
        self._enter("prefill", (row, start, len(ids)))
        assert 1 <= len(ids) <= self.chunk
        assert start in (0, len(self._held[row]))
        self._held[row] = self._held[row][:start]
        out = []
        for token in ids:
            self._add(row, token)
            out.append(self._logits_of(self._held[row]))
        return np.stack(out[-1:] if last_only else out)

    def step(self, tokens: Sequence[Sequence[int]], positions: Sequence[int], logits: Collection[int] = ()) -> FakeStep:
        """As the protocol says."""
        assert len(tokens) == len(positions) == self.rows
        given = tuple(row for row in range(self.rows) if tokens[row])
        assert given
        assert set(logits) <= set(given)
        self._enter("step", given, 0)
        made = {}
        for row in given:
            (token,) = tokens[row]
            assert positions[row] == len(self._held[row])
            self._add(row, token)
            made[row] = self._logits_of(self._held[row])[None]
        asked, began = tuple(logits), time.monotonic()

        def end() -> StepResult:
            time.sleep(max(0.0, began + self.delay - time.monotonic()))
            assert self.gate.wait(20)
            if self.fail_waits:
                self.fail_waits -= 1
                raise RuntimeError("the chip is on fire")
            return result(self.rows, made, asked)

        return FakeStep(end)

    def save(self, row: int) -> FakeSaved:
        """As the protocol says."""
        self._enter("save", (row, len(self._held[row])))
        return FakeSaved(tuple(self._held[row]))

    def restore(self, row: int, saved: FakeSaved, length: int) -> None:
        """As the protocol says."""
        self._enter("restore", (row, length))
        assert 0 < length <= saved.length
        assert self.cuts or length == saved.length
        self._held[row] = list(saved.tokens[:length])

    def reset(self) -> bool:
        """As the protocol says; `unharmed` is whether rows survive."""
        self.calls.append(("reset", ()))
        if self.fail_resets:
            self.fail_resets -= 1
            raise RuntimeError("still on fire")
        if not self.unharmed:
            self._held = [[] for _ in range(self.rows)]
        return self.unharmed

    def _add(self, row: int, token: int) -> None:
        assert 0 <= token < self.vocab
        assert len(self._held[row]) < self.context
        self._held[row].append(token)

    def _enter(self, name: str, about: tuple[int, ...], delay: float | None = None) -> None:
        assert self._busy.acquire(blocking=False), "two calls at a time"
        self.calls.append((name, about))
        time.sleep(self.delay if delay is None else delay)
        self._busy.release()
        if self.fail_next:
            self.fail_next -= 1
            raise RuntimeError("the chip is on fire")


class Speaker:
    """Says `ids`, then ends with `end`, after whatever prompt. Costs next to nothing."""

    cuts, tokens_per_row, rewinds = True, 1, False

    def __init__(self, rows: int, context: int, vocab: int, end: int) -> None:
        self.rows, self.context, self.vocab, self.chunk = rows, context, vocab, context
        self.ids: Sequence[int] = ()
        self.end = end
        self._read = [0] * rows

    def prefill(self, row: int, ids: Sequence[int], start: int, last_only: bool = False) -> np.ndarray:
        """As the protocol says; only the last logits mean something."""
        self._read[row] = start + len(ids)
        out = np.zeros((1 if last_only else len(ids), self.vocab), dtype=np.float32)
        out[-1] = self._next(0)
        return out

    def step(self, tokens: Sequence[Sequence[int]], positions: Sequence[int], logits: Collection[int] = ()) -> FakeStep:
        """As the protocol says."""
        made = {row: self._next(positions[row] + 1 - self._read[row])[None] for row in range(self.rows) if tokens[row]}
        return FakeStep(lambda: result(self.rows, made, logits))

    def save(self, row: int) -> FakeSaved:
        """As the protocol says."""
        return FakeSaved(())

    def restore(self, row: int, saved: FakeSaved, length: int) -> None:
        """Nothing is ever kept."""
        raise NotImplementedError

    def reset(self) -> bool:
        """As the protocol says."""
        return True

    def _next(self, number: int) -> np.ndarray:
        out = np.zeros(self.vocab, dtype=np.float32)
        out[self.ids[number] if 0 <= number < len(self.ids) else self.end] = 50
        return out
