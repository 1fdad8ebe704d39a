"""MXFP4 in blocks of e4m3 numbers: bit by bit the same, or refused."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mks.models.checkpoint.codecs import E2M1
from mks.models.checkpoint.read import Quantised
from mks.models.packing.requantize import BlockError, reblocked

E4M3 = ml_dtypes.float8_e4m3fn
BIAS = 127


def drawn(outputs: int, inputs: int, group: int, lowest: int, spread: int, seed: int) -> Quantised:
    """Codes, a half of them zeros in some groups, with scales of exponents that are up to `spread` apart."""
    draw = np.random.default_rng(seed)
    codes = draw.integers(0, 16, (outputs, inputs), np.uint8)
    codes[draw.random(codes.shape) < draw.choice([0.0, 0.5, 0.97])] = draw.choice([0, 8])
    codes = np.pad(codes, ((0, 0), (0, inputs % 2)))
    scales = draw.integers(lowest, lowest + spread + 1, (outputs, inputs // group)) + BIAS
    return Quantised(codes[:, ::2] | codes[:, 1::2] << 4, np.clip(scales, 1, 254).astype(np.uint8))


def values(matrix: Quantised, inputs: int, group: int) -> np.ndarray:
    """What `mxfp4` means, f64 `[outputs, inputs]`."""
    codes = np.stack([matrix.codes & 15, matrix.codes >> 4], axis=-1).reshape(len(matrix.codes), -1)[:, :inputs]
    scales = np.ldexp(1.0, matrix.scales.astype(int) - BIAS)
    return E2M1[codes].astype(np.float64) * np.repeat(scales, group, axis=1)


def meaning(matrix: Quantised, block: int) -> np.ndarray:
    """What e4m3 numbers in blocks mean, f64."""
    scales = np.repeat(np.ldexp(1.0, matrix.scales.astype(int) - BIAS), block, axis=1)
    return matrix.codes.view(E4M3).astype(np.float64) * scales[:, : matrix.codes.shape[1]]


def exact(block: np.ndarray) -> bool:
    """Whether some power of two as a scale makes all numbers e4m3's, by trying every one."""
    for exponent in range(-126, 128):
        scaled = np.ldexp(block, -exponent)
        with np.errstate(all="ignore"):
            if np.abs(scaled).max() <= 448 and (scaled.astype(E4M3).astype(np.float64) == scaled).all():
                return True
    return False


def tried(given: Quantised, inputs: int, block: int) -> Quantised | BlockError:
    """What comes of it."""
    try:
        return reblocked(given, inputs, block)
    except BlockError as e:
        return e


@settings(max_examples=150, deadline=None)
@given(
    inputs=st.integers(1, 700),
    group=st.sampled_from([1, 2, 8, 16, 32]),
    block=st.sampled_from([32, 96, 128, 256]),
    lowest=st.one_of(st.integers(-30, 5), st.sampled_from([-126, 105])),
    spread=st.integers(0, 22),
    seed=st.integers(0, 999),
)
def test_exact_or_refused(inputs: int, group: int, block: int, lowest: int, spread: int, seed: int) -> None:
    """Every weight keeps its value and its sign; what is refused has no exact scale at all, and what is offered has."""
    inputs = max(group, inputs // group * group)
    given = drawn(2, inputs, group, lowest, spread, seed)
    wanted = values(given, inputs, group)

    found = tried(given, inputs, block)
    if isinstance(found, BlockError):
        assert not exact(wanted[found.output, found.inputs.start : found.inputs.stop])
        assert found.inputs.start % block == 0
        assert len(found.inputs) == block or found.inputs.stop == inputs
        assert found.least > found.most
        assert found.fits < block
        assert not found.fits or (meaning(reblocked(given, inputs, found.fits), found.fits) == wanted).all()
        return

    assert (found.codes.shape, found.scales.shape) == ((2, inputs), (2, -(-inputs // block)))
    assert ((found.scales >= 1) & (found.scales <= 254)).all()
    np.testing.assert_array_equal(meaning(found, block), wanted)
    np.testing.assert_array_equal(np.signbit(meaning(found, block)), np.signbit(wanted))


@pytest.mark.parametrize(("spread", "fits"), [(0, True), (14, True), (15, False)])
def test_how_far_scales_may_be_apart(spread: int, fits: bool) -> None:
    """With all codes in every group, 2 ** 14 and no more."""
    codes = np.tile(np.arange(16, dtype=np.uint8), 16)[None]
    scales = np.full((1, 8), 100, np.uint8)
    scales[0, 5] += spread
    given = Quantised(codes[:, ::2] | codes[:, 1::2] << 4, scales)

    if fits:
        np.testing.assert_array_equal(meaning(reblocked(given, 256, 256), 256), values(given, 256, 32))
        return
    with pytest.raises(BlockError) as raised:
        reblocked(given, 256, 256)
    error = raised.value
    assert (error.output, error.inputs, error.exponents, error.fits) == (0, range(256), (-27, -12), 32)
    assert (error.least, error.most) == (-18, -19)


def test_a_block_of_zeros_is_exact() -> None:
    """Whatever its scales are, since nothing is multiplied by them."""
    scales = np.array([[1, 254, 30, 200]], np.uint8)

    found = reblocked(Quantised(np.zeros((1, 64), np.uint8), scales), 128, 128)

    assert not found.codes.any()


def test_comparing_notices_a_changed_number() -> None:
    """A number whose lowest bit is another is not taken for the same."""
    given = drawn(1, 256, 32, -3, 4, 1)
    found = reblocked(given, 256, 256)
    found.codes[0, 7] ^= 1

    assert (meaning(found, 256) != values(given, 256, 32)).sum() == 1
