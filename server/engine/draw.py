"""Drawing a token from filtered logits, without sorting or widening a vocabulary that needs neither."""

from __future__ import annotations

import numpy as np

from .sampling_params import Sampling
from .scores import largest

# So many of the likeliest tokens nearly always hold the nucleus; where they do not, tokens are put into bins by weight.
NUCLEUS = (64, 1024)
_BINS = 4096
_BIN = 0.01

# Weights are summed in blocks of so many tokens.
_BLOCK = 128


def draw(logits: np.ndarray, params: Sampling, at: float) -> int:
    """The token at quantile `at` of the filtered distribution, tokens in the order of their ids.

    `logits` f32 `[vocab]`. Filters are applied in the order min-p, top-k, top-p, each to what the one before left.
    """
    peak = logits.max()
    if params.min_p > 0 or 0 < params.top_k < len(logits):
        ids = _top_k(logits, params.top_k) if 0 < params.top_k < len(logits) else _near(logits, peak, params)
        weights = _weights(logits[ids], peak, params)
        allowed = weights >= params.min_p
        ids, weights = ids[allowed], weights[allowed]
        if params.top_p < 1:
            inside = np.sort(_nucleus(weights, params.top_p * weights.sum()))
            ids, weights = ids[inside], weights[inside]
        return int(ids[_at(weights, at)])
    rough = _rough_weights(logits, peak, params)
    sums = _block_sums(rough).cumsum()
    if params.top_p < 1:
        goal = params.top_p * sums[-1]
        for count in NUCLEUS:
            ids = _at_least(logits, count)
            weights = _weights(logits[ids], peak, params)
            if weights.sum() >= goal:
                inside = np.sort(_nucleus(weights, goal))
                return int(ids[inside][_at(weights[inside], at)])
        rough = _large_nucleus(logits, peak, rough, goal, params)
        sums = _block_sums(rough).cumsum()
    return _at_block(rough, sums, at * sums[-1])


def _weights(logits: np.ndarray, peak: np.floating, params: Sampling) -> np.ndarray:
    """Probabilities relative to the likeliest token's, in f64."""
    return np.exp((logits.astype(np.float64) - np.float64(peak)) / params.temperature)


def _rough_weights(logits: np.ndarray, peak: np.floating, params: Sampling) -> np.ndarray:
    """The same in f32."""
    out = np.subtract(logits, peak)
    np.multiply(out, np.float32(1 / params.temperature), out=out)
    return np.exp(out, out=out)


def _at_least(logits: np.ndarray, count: int) -> np.ndarray:
    """Ids, rising, of all tokens above some bound, at least `count` of them."""
    size = len(logits)
    depth = size // max(4 * count, 512)
    if depth < 2:
        return np.arange(size)
    # Each of `count` columns has an entry that reaches the bound.
    peaks = logits[: size // depth * depth].reshape(depth, -1).max(axis=0)
    bound = np.partition(peaks, len(peaks) - count)[len(peaks) - count]
    return np.flatnonzero(logits >= bound)


def _top_k(logits: np.ndarray, count: int) -> np.ndarray:
    """Ids, rising, of the `count` largest; of equal ones the first."""
    ids = _at_least(logits, count)
    return np.sort(ids[largest(logits[ids], count)])


def _near(logits: np.ndarray, peak: np.floating, params: Sampling) -> np.ndarray:
    """Ids, rising, of at least the tokens that min-p keeps."""
    return np.flatnonzero(logits >= np.float64(peak) + params.temperature * np.log(params.min_p) - 1e-3)


def _nucleus(weights: np.ndarray, goal: float) -> np.ndarray:
    """Indices of the largest that together reach `goal`; at least one."""
    order = largest(weights, len(weights))
    before = np.cumsum(weights[order])
    return order[: 1 + int(np.searchsorted(before, goal, side="left"))]


def _large_nucleus(
    logits: np.ndarray, peak: np.floating, rough: np.ndarray, goal: float, params: Sampling
) -> np.ndarray:
    """`rough`, but zero outside of the nucleus; only the bin in which the goal is reached is sorted."""
    bins = np.minimum((peak - logits) / np.float32(params.temperature * _BIN), _BINS - 1).astype(np.int32)
    sums = np.cumsum(np.bincount(bins, weights=rough, minlength=_BINS))
    last = min(int(np.searchsorted(sums, goal)), _BINS - 1)
    out = np.where(bins < last, rough, np.float32(0))
    ids = np.flatnonzero(bins == last)
    inside = (
        _nucleus(_weights(logits[ids], peak, params), goal - (sums[last - 1] if last else 0.0)) if len(ids) else ids
    )
    out[ids[inside]] = rough[ids[inside]]
    return out


def _at(weights: np.ndarray, at: float) -> int:
    """The index at quantile `at`."""
    sums = np.cumsum(weights)
    # Rounding may put the quantile at the very end, where weights can be zero.
    return min(int(np.searchsorted(sums, at * sums[-1], side="right")), int(np.flatnonzero(weights)[-1]))


def _block_sums(weights: np.ndarray) -> np.ndarray:
    whole = len(weights) // _BLOCK * _BLOCK
    sums = np.add.reduce(weights[:whole].reshape(-1, _BLOCK), axis=1).astype(np.float64)
    return sums if whole == len(weights) else np.append(sums, weights[whole:].sum())


def _at_block(weights: np.ndarray, sums: np.ndarray, goal: float) -> int:
    """The index at which the running sum of f32 `weights` passes `goal`; `sums` are those at the ends of blocks."""
    block = int(sums.searchsorted(goal, "right"))
    start = block * _BLOCK
    inside = weights[start : start + _BLOCK].astype(np.float64)
    index = int(inside.cumsum().searchsorted(goal - (sums[block - 1] if block else 0.0), "right"))
    if index < len(inside):
        return start + index
    # The two kinds of sums are rounded differently: past the end of the block, or of all of them.
    return int(np.flatnonzero(weights[: start + _BLOCK])[-1])
