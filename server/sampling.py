"""Which token comes next.

A choice depends on the logits, the sequence's own tokens, the parameters, the seed and the output position: never on
the row, on the other sequences or on the steps in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from attrs import field, frozen

from .scores import largest

# Below this, dividing by the temperature overflows; the choice is greedy.
COLD = 1e-5

# Nearly always enough candidates for `top_p`; all are sorted where it is not.
NUCLEUS = 1024


class Mask(Protocol):
    """Where one sequence is in a grammar.

    For the positions of a draft: `allowed`, `take` its token, and so on, then `roll_back` what was not accepted.
    """

    def allowed(self) -> np.ndarray:
        """Which tokens may come next, bool `[vocab]`, at least one; at the grammar's end only end tokens."""

    def take(self, token: int) -> None:
        """Go on by a token that is allowed."""

    def roll_back(self, count: int) -> None:
        """Undo the last `count` tokens."""


class Grammar(Protocol):
    """What an answer is held to."""

    def start(self) -> Mask:
        """The mask of a new sequence."""


@frozen
class Sampling:
    """The parameters of one sequence; the defaults leave the model's distribution as it is."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    # These tokens are not chosen among the first `min_tokens`.
    min_tokens: int = 0
    end_ids: tuple[int, ...] = ()
    grammar: Grammar | None = field(default=None, repr=False)

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken."""
        return self.temperature < COLD or self.top_k == 1 or self.min_p >= 1.0


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on `seed` (any 64-bit integer) and `position` only."""
    raw = np.random.Philox(key=seed % 2**64, counter=position).random_raw()
    return (raw >> 11) * 2.0**-53


class Sampler:
    """Chooses the tokens of one sequence, one after the other."""

    def __init__(self, params: Sampling, vocab: int, prompt: Sequence[int] = ()) -> None:
        self._params = params
        self._position = 0
        self._mask = None if params.grammar is None else params.grammar.start()
        self._bias_ids = np.array([token for token, _ in params.logit_bias], dtype=np.intp)
        self._bias = np.array([bias for _, bias in params.logit_bias], dtype=np.float32)
        self._ends = np.array([token for token in params.end_ids if token < vocab], dtype=np.intp)
        self._counts = np.zeros(vocab, dtype=np.float32) if self._counted else None
        self._seen = None
        if params.repetition_penalty != 1.0:
            self._seen = np.zeros(vocab, dtype=bool)
            self._seen[np.asarray(prompt, dtype=np.intp)] = True

    @property
    def _counted(self) -> bool:
        return self._params.presence_penalty != 0 or self._params.frequency_penalty != 0

    def choose(self, logits: np.ndarray) -> int:
        """The next token, given the f32 `logits` `[vocab]` at its position."""
        adjusted = self._adjust(logits)
        if self._params.greedy:
            token = int(adjusted.argmax())
        else:
            token = draw(adjusted, self._params, uniform(self._params.seed, self._position))
        self._position += 1
        if self._mask is not None:
            self._mask.take(token)
        if self._counts is not None:
            self._counts[token] += 1
        if self._seen is not None:
            self._seen[token] = True
        return token

    def _adjust(self, logits: np.ndarray) -> np.ndarray:
        params = self._params
        out = logits.astype(np.float32)
        if self._seen is not None:
            factor = np.float32(params.repetition_penalty)
            out = np.where(self._seen, np.where(out > 0, out / factor, out * factor), out)
        if self._counts is not None:
            out -= params.frequency_penalty * self._counts + params.presence_penalty * (self._counts > 0)
        if len(self._bias_ids):
            out[self._bias_ids] += self._bias
        if self._position < params.min_tokens:
            out[self._ends] = -np.inf
        return out if self._mask is None else self._masked(out, self._mask.allowed())

    def _masked(self, logits: np.ndarray, allowed: np.ndarray) -> np.ndarray:
        """The grammar comes last, so nothing overrules it; where it leaves only an end, `min_tokens` gives way."""
        out = np.where(allowed, logits, -np.inf)
        return out if np.isfinite(out.max()) else np.where(allowed, np.float32(0), -np.inf)


def draw(logits: np.ndarray, params: Sampling, at: float) -> int:
    """The token at quantile `at` of the filtered distribution, tokens in the order of their ids."""
    scaled = logits.astype(np.float64) / params.temperature
    weights = np.exp(scaled - scaled.max())
    if params.min_p > 0:
        weights = np.where(weights >= params.min_p, weights, 0.0)
    if 0 < params.top_k < len(weights):
        weights = _only(weights, largest(weights, params.top_k))
    if params.top_p < 1:
        weights = _only(weights, _nucleus(weights, params.top_p))
    sums = np.cumsum(weights)
    token = int(np.searchsorted(sums, at * sums[-1], side="right"))
    # Rounding may put the quantile at the very end, where weights can be zero.
    return min(token, int(np.flatnonzero(weights)[-1]))


def _only(weights: np.ndarray, kept: np.ndarray) -> np.ndarray:
    out = np.zeros_like(weights)
    out[kept] = weights[kept]
    return out


def _nucleus(weights: np.ndarray, top_p: float) -> np.ndarray:
    """The likeliest tokens that together reach `top_p`; at least one."""
    goal = top_p * weights.sum()
    for count in (NUCLEUS, len(weights)):
        order = largest(weights, count)
        before = np.cumsum(weights[order])
        if before[-1] >= goal:
            break
    return order[: 1 + int(np.searchsorted(before, goal, side="left"))]
