"""Where an answer ends: the one place that trims a sequence of tokens to what the client gets.

Streamed or not, text, log-probabilities, token ids and usage are all read from the same `Delta`s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum

from attrs import frozen

from ..engine.scores import Scored
from .stream import StopMatcher, Utf8Stream


class Finish(StrEnum):
    """Why an answer ended, in the words of the API."""

    STOP = "stop"
    LENGTH = "length"


@frozen
class Limits:
    """Where an answer ends.

    `end_ids` end it silently, `stop_ids` and `stops` are named as the reason. A stop string that is complete within the
    first `min_tokens` tokens is text; that no end token comes there is the sampler's duty.
    """

    max_tokens: int
    end_ids: frozenset[int] = frozenset()
    stop_ids: frozenset[int] = frozenset()
    stops: tuple[str, ...] = ()
    min_tokens: int = 0
    include_stop: bool = False


@frozen
class Delta:
    """What some tokens added to an answer: `text` is certain, `tokens` are all counted ones, ends included."""

    text: str = ""
    tokens: tuple[Scored, ...] = ()
    # Characters of the answer that were complete before each of `tokens`.
    offsets: tuple[int, ...] = ()
    finish: Finish | None = None
    # The stop string or the id in `stop_ids` that ended the answer.
    stop_reason: str | int | None = None


def merge(deltas: Iterable[Delta]) -> Delta:
    """Consecutive deltas as one."""
    parts = tuple(deltas)
    if len(parts) == 1:
        return parts[0]
    return Delta(
        text="".join(part.text for part in parts),
        tokens=tuple(token for part in parts for token in part.tokens),
        offsets=tuple(offset for part in parts for offset in part.offsets),
        finish=parts[-1].finish if parts else None,
        stop_reason=parts[-1].stop_reason if parts else None,
    )


# The bytes that a token adds to the text, or the mark that it leaves there, between whole characters.
type PieceOf = Callable[[int], bytes | str]


class Answer:
    """One sequence's output as it grows."""

    def __init__(self, limits: Limits, piece: PieceOf) -> None:
        self._limits = limits
        self._piece = piece
        self._utf8 = Utf8Stream()
        self._stops = StopMatcher(limits.stops)
        self._count = 0
        self._decoded = 0
        self.finished = False

    def push(self, tokens: Iterable[Scored]) -> Delta:
        """What `tokens` add, up to and including the one that ends the answer; later ones are dropped."""
        return merge(self._push(token) for token in tokens if not self.finished)

    def _push(self, token: Scored) -> Delta:
        limits = self._limits
        offset = self._decoded
        self._count += 1
        finish: Finish | None = None
        reason: str | int | None = None
        if token.token in limits.end_ids or token.token in limits.stop_ids:
            finish = Finish.STOP
            reason = token.token if token.token in limits.stop_ids else None
            text = self._stops.flush()
            if limits.include_stop:
                text += self._decode(self._piece(token.token))
        else:
            text, stop = self._match(self._decode(self._piece(token.token)))
            if stop is not None:
                finish, reason = Finish.STOP, stop
                text += stop if limits.include_stop else ""
            elif self._count >= limits.max_tokens:
                finish = Finish.LENGTH
        if finish is not None:
            self.finished = True
            if not isinstance(reason, str):
                text += self._rest()
        return Delta(text, (token,), (offset,), finish, reason)

    def _decode(self, data: bytes | str) -> str:
        text = self._utf8.flush() + data if isinstance(data, str) else self._utf8.push(data)
        self._decoded += len(text)
        return text

    def _match(self, text: str) -> tuple[str, str | None]:
        return self._stops.push(text, ends=self._count > self._limits.min_tokens)

    def _rest(self) -> str:
        """All that was held back; a character that was cut shows as U+FFFD."""
        return self._stops.flush() + self._utf8.flush()
