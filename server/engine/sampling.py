"""Which token comes next.

A choice depends on the logits, the sequence's own tokens, the parameters, the seed and the output position: never on
the row, on the other sequences or on the steps in between.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .draw import draw
from .sampling_params import Sampling

# Random numbers that are made at a time.
AHEAD = 64


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on `seed` (any 64-bit integer) and `position` only."""
    return float(uniforms(seed, position, 1)[0])


def uniforms(seed: int, position: int, count: int) -> np.ndarray:
    """Those of `count` positions from `position` on, f64 `[count]`."""
    # A step of the counter gives four words; the first is taken.
    raw = np.random.Philox(key=seed % 2**64, counter=position).random_raw(4 * count)[::4]
    return (raw >> np.uint64(11)) * 2.0**-53


class Sampler:
    """Chooses the tokens of one sequence, one after the other."""

    def __init__(self, params: Sampling, vocab: int, prompt: Sequence[int] = ()) -> None:
        self._params = params
        self._position = 0
        self._randoms = np.empty(0)
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
    def takes_likeliest(self) -> bool:
        """Whether the next token is the likeliest of the model's own logits, which then nobody needs to see."""
        params = self._params
        changed = (
            self._mask is not None
            or self._counts is not None
            or self._seen is not None
            or len(self._bias_ids) > 0
            or self._position < params.min_tokens
        )
        return params.greedy and not changed

    @property
    def _counted(self) -> bool:
        return self._params.presence_penalty != 0 or self._params.frequency_penalty != 0

    def choose(self, logits: np.ndarray) -> int:
        """The next token, given the f32 `logits` `[vocab]` at its position."""
        adjusted = self._adjust(logits)
        token = int(adjusted.argmax()) if self._params.greedy else draw(adjusted, self._params, self._random())
        self.take(token)
        return token

    def take(self, token: int) -> None:
        """Go on by a token that was chosen."""
        self._position += 1
        if self._mask is not None:
            self._mask.take(token)
        if self._counts is not None:
            self._counts[token] += 1
        if self._seen is not None:
            self._seen[token] = True

    def _random(self) -> float:
        ahead = self._position % AHEAD
        if ahead == 0:
            self._randoms = uniforms(self._params.seed, self._position, AHEAD)
        return float(self._randoms[ahead])

    def _adjust(self, logits: np.ndarray) -> np.ndarray:
        params = self._params
        out = np.asarray(logits, dtype=np.float32)
        if len(self._bias_ids) or self._counts is not None or self._position < params.min_tokens:
            out = out.copy()
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
