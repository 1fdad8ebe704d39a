"""What the engine tells of its work; here, nothing is made of it."""

from __future__ import annotations

from collections.abc import Iterable

from .sequence import Running


class Observer:
    """Called on the engine's threads, so it must not block. `now` is in seconds of `time.monotonic`."""

    def took(self, run: Running, now: float) -> None:
        """A sequence has its next token; `run.latest` is still when it had the one before, 0.0 for its first."""

    def passed(self, tokens: int) -> None:
        """A call of the decoder was for so many tokens, of prompts or answers."""

    def ended(self, run: Running, how: str, now: float) -> None:
        """A sequence is over: `stop`, `length`, `abort` or `error`. Once for every sequence that was taken."""

    def asked(self, n: int, limits: Iterable[int]) -> None:
        """A request for `n` choices a prompt was taken; `limits` are the tokens that each may have."""

    def began(self, run: Running) -> None:
        """A prompt is being read; `run.cached` tokens of it need not be."""
