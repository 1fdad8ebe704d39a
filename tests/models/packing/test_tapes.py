"""Weights as tapes: a matrix comes out of its tape as it went in, however it is cut, stored and padded."""

from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mks.dsl.program.layout.tiling import Tiling, tiling
from mks.models.packing import tapes

DTYPES = {32: np.dtype(np.float32), 16: np.dtype(ml_dtypes.bfloat16), 8: np.dtype(np.uint8), 4: np.dtype(np.uint8)}


def matrix(outputs: int, inputs: int, bits: int, seed: int = 0) -> np.ndarray:
    """Any bits, not-a-numbers among them; nibbles as whole bytes."""
    data = np.random.default_rng(seed).integers(0, 256, (outputs, inputs * bits // 8), np.uint8)
    return data.view(DTYPES[bits])


def bits_of(array: np.ndarray) -> np.ndarray:
    """Numbers as bytes, which compare where numbers do not."""
    return np.ascontiguousarray(array).view(np.uint8)


def by_element(padded: np.ndarray, made: Tiling) -> np.ndarray:
    """The tape as its description says it, one element at a time."""
    per_word, numbers = 32 // made.bits, padded.view(f"u{made.bits // 8}").astype(np.uint64)
    lines = []
    for run in made.runs:
        for block in range(run.count * run.blocks):
            part = numbers[run.first + block * run.columns :][: run.columns]
            each = made.inputs // run.fold
            for row in range(each // per_word):
                line = np.zeros(512, np.uint64)
                for piece in range(run.fold):
                    for k in range(per_word):
                        values = part[:, piece * each + row * per_word + k] << np.uint64(k * made.bits)
                        line[piece * run.columns : (piece + 1) * run.columns] |= values
                lines.append(line)
    return np.stack(lines).astype(np.uint32).view(np.int32)


@settings(max_examples=60, deadline=None)
@given(
    outputs=st.integers(1, 1400),
    inputs=st.integers(1, 300),
    bits=st.sampled_from([4, 8, 16, 32]),
    cuts=st.lists(st.integers(0, 1400), max_size=3),
    seed=st.integers(0, 9),
)
def test_what_is_packed_can_be_unpacked(outputs: int, inputs: int, bits: int, cuts: list[int], seed: int) -> None:
    """For all shapes, from matrices one below the other that are themselves parts of larger ones; the rest is zero."""
    inputs += inputs % 2 if bits == 4 else 0
    made, dtype = tiling(outputs, inputs, bits), DTYPES[bits]
    whole = matrix(outputs, inputs, bits, seed)
    wide = np.concatenate([matrix(outputs, 64, bits), whole, matrix(outputs, 64, bits)], axis=1)
    inner = wide[:, 64 * bits // 8 // dtype.itemsize :][:, : whole.shape[1]]
    edges = [0, *sorted(min(cut, outputs) for cut in cuts), outputs]
    parts = [inner[a:b] for a, b in pairwise(edges)]

    rows = np.concatenate([block.copy() for block in tapes.blocks(parts, made, dtype)])
    found = bits_of(tapes.unpack(rows, made, dtype))

    assert rows.shape == (made.rows, 512) == (sum(made.transfers), 512)
    assert np.array_equal(rows, tapes.pack(whole, made))
    assert found.shape == (made.outputs, made.inputs * bits // 8)
    assert np.array_equal(found[:outputs, : inputs * bits // 8], bits_of(whole))
    assert not found[outputs:].any()
    assert not found[:, inputs * bits // 8 :].any()


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize(("outputs", "inputs"), [(512, 64), (700, 40), (130, 128), (1000, 24)])
def test_words_lie_where_the_tiling_says(outputs: int, inputs: int, bits: int) -> None:
    """Columns of a block side by side, folded inputs beside them, the first of a word's inputs in its lowest bits."""
    made = tiling(outputs, inputs, bits)
    whole = np.zeros((made.outputs, made.inputs), DTYPES[bits])
    whole[:outputs, :inputs] = matrix(outputs, inputs, bits)

    assert np.array_equal(tapes.pack(whole, made), by_element(whole, made))


def test_numbers_are_converted_where_a_product_holds_another_type() -> None:
    """A product that works in f32 takes bf16 matrices as they are."""
    made = tiling(300, 64, 32)
    whole = np.random.default_rng(0).normal(size=(300, 64)).astype(ml_dtypes.bfloat16)
    rows = np.concatenate([block.copy() for block in tapes.blocks([whole], made, DTYPES[32])])

    assert np.array_equal(rows, tapes.pack(whole.astype(np.float32), made))
