"""MXFP4 as e4m3 numbers whose blocks share a power of two: each weight keeps its exact value, or it is refused.

An e4m3 number is a multiple of 2 ** -9 up to 448. A code of MXFP4 is one bit or, as 1.5, 3 and 6, two next to each
other, so that a block's scale is bounded from below by its largest number and from above by its lowest bit. Blocks
whose groups have scales within 2 ** 14 of each other always have one.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from attrs import evolve, frozen

from ..checkpoint.codecs import E2M1
from ..checkpoint.read import Quantised

type Array = np.ndarray[Any, Any]

_LOWEST, _LARGEST = -9, 448.0  # the lowest bit of an e4m3 number, as an exponent, and the largest one
_BIAS = 127
_NONE = 1000  # a bound of zeros, which any scale suits
_SHIFTS = range(-11, 10)  # exponents that some code can be multiplied by

# By code: the least and the most exponent of a block's scale, where the group's is 2 ** 0.
_BITS = np.array([_NONE, -1, 0, -1, 1, 0, 2, 1] * 2)  # the exponent of a code's lowest bit
_AT_MOST = np.where(E2M1 == 0, _NONE, _BITS - _LOWEST).astype(np.int16)
_AT_LEAST = np.array([-_NONE if x == 0 else int(np.ceil(np.log2(x / _LARGEST))) for x in np.abs(E2M1)], np.int16)
# By exponent and code, the e4m3 number's byte; where there is none, of what is never asked for, any.
_SHIFTED = np.stack([np.clip(np.ldexp(E2M1, shift), -_LARGEST, _LARGEST) for shift in _SHIFTS])
_BYTES = _SHIFTED.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
_LOW, _HIGH = np.arange(256) & 15, np.arange(256) >> 4
# The same for two codes of a byte at once, which is twice as fast.
_OF_ONE = (_AT_LEAST, _AT_MOST, _BYTES)
_OF_TWO = (
    np.maximum(_AT_LEAST[_LOW], _AT_LEAST[_HIGH]),
    np.minimum(_AT_MOST[_LOW], _AT_MOST[_HIGH]),
    np.stack([_BYTES[:, _LOW], _BYTES[:, _HIGH]], axis=-1).view("<u2")[..., 0],
)


@frozen
class BlockError(Exception):
    """A block that no scale holds exactly.

    `inputs` of `output` are its own, of `expert` and `weight`. Its groups' scales are 2 to the power of `exponents`,
    lowest and highest; its own would have to be at least 2 ** `least` and at most 2 ** `most`. Blocks of `fits` inputs
    would be exact in its matrix, the longest that are; 0 where none are.
    """

    output: int
    inputs: range
    exponents: tuple[int, int]
    least: int
    most: int
    fits: int
    weight: str = ""
    expert: int = 0

    def at(self, weight: str, expert: int, output: int, first: int) -> BlockError:
        """The same of a whole matrix, whose share begins at `output` and input `first`."""
        inputs = range(self.inputs.start + first, self.inputs.stop + first)
        return evolve(self, weight=weight, expert=expert, output=self.output + output, inputs=inputs)


def reblocked(matrix: Quantised, inputs: int, block: int) -> Quantised:
    """A matrix of `inputs` inputs as e4m3 numbers in blocks of `block` inputs, a multiple of 32, the last one shorter.

    Raises `BlockError` for the first block that would lose bits.
    """
    outputs, groups = matrix.scales.shape
    group = inputs // groups
    together = 1 + (group % 2 == 0)
    at_least, at_most, numbers = (_OF_ONE, _OF_TWO)[together - 1]
    codes = matrix.codes if together == 2 else _single(matrix.codes, inputs)
    codes = codes.reshape(outputs, groups, group // together)
    exponents = matrix.scales.astype(np.int16) - _BIAS
    each = block // group
    lower, upper = _bounds(exponents + _AT_LEAST.max(), exponents + _AT_MOST.min(), each)
    if (lower > upper).any():
        # That is not for any codes, but perhaps for these; looking at them takes most of the time.
        least, most = at_least[codes].max(axis=-1) + exponents, at_most[codes].min(axis=-1) + exponents
        lower, upper = _bounds(least, most, each)
        if (lower > upper).any():
            raise _error(exponents, least, most, inputs, each)
    # As small as it may be, so that few numbers are subnormal.
    scales = np.maximum(lower, 1 - _BIAS)
    shifts = exponents - np.repeat(scales, each, axis=1)[:, :groups]
    which = np.clip(shifts, _SHIFTS.start, _SHIFTS.stop - 1) - _SHIFTS.start
    result = np.take(numbers.reshape(-1), which[..., None] * numbers.shape[1] + codes)
    return Quantised(result.view(np.uint8).reshape(outputs, inputs), (scales + _BIAS).astype(np.uint8))


def _single(codes: Array, inputs: int) -> Array:
    """Codes one by one, of groups that end within a byte."""
    return np.stack([codes & 15, codes >> 4], axis=-1).reshape(len(codes), -1)[:, :inputs]


def _bounds(least: Array, most: Array, each: int) -> tuple[Array, Array]:
    """The least and the most exponent of the scale of blocks of `each` groups, `[outputs, blocks]`."""
    starts = np.arange(0, least.shape[1], each)
    return np.maximum.reduceat(least, starts, axis=1), np.minimum.reduceat(most, starts, axis=1)


def _error(exponents: Array, least: Array, most: Array, inputs: int, each: int) -> BlockError:
    """The first block that no scale suits, and how long blocks may be that all have one."""
    lower, upper = _bounds(least, most, each)
    output, at = (int(i) for i in np.argwhere(lower > upper)[0])
    group, groups = inputs // least.shape[1], slice(at * each, (at + 1) * each)
    used = exponents[output, groups][most[output, groups] < _NONE // 2]
    shorter = range((each * group - 1) // 32 * 32, 0, -32)
    fits = next((n for n in shorter if np.less_equal(*_bounds(least, most, n // group)).all()), 0)
    own = range(at * each * group, min((at + 1) * each * group, inputs))
    return BlockError(
        output, own, (int(used.min()), int(used.max())), int(lower[output, at]), int(upper[output, at]), fits
    )
