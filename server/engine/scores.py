"""Log-probabilities of tokens under the model's own logits."""

from __future__ import annotations

import numpy as np
from attrs import frozen

# What JSON is given for the logarithm of zero, as other servers do.
LOWEST = -9999.0


@frozen
class Scored:
    """A token, its natural log-probability (None: not asked for or undefined) and the likeliest tokens there.

    `rank` is 1 for the likeliest token.
    """

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    rank: int = 0


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` largest of `values` `[n]`, in falling order, equal ones by index."""
    if count <= 0:
        return np.empty(0, dtype=np.intp)
    if count >= len(values):
        order = np.arange(len(values))
    else:
        bound = np.partition(values, len(values) - count)[len(values) - count]
        above = np.flatnonzero(values > bound)
        equal = np.flatnonzero(values == bound)[: count - len(above)]
        order = np.sort(np.concatenate((above, equal)))
    return order[np.argsort(-values[order], kind="stable")]


def score(logits: np.ndarray, token: int, top: int = 0) -> Scored:
    """The score of `token` under f32 `logits` `[vocab]`, with the `top` likeliest tokens."""
    wide = logits.astype(np.float64)
    peak = wide.max()
    norm = peak + np.log(np.exp(wide - peak).sum())
    best = tuple((int(index), _finite(wide[index] - norm)) for index in largest(logits, top))
    rank = 1 + int(np.count_nonzero(logits > logits[token]))
    return Scored(token, _finite(wide[token] - norm), best, rank)


def _finite(logprob: np.floating) -> float:
    return max(float(logprob), LOWEST)
