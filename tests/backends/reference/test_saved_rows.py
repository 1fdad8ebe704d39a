"""Rows that are kept and put back: going on from them gives the same bits as reading everything again."""

from functools import cache

import numpy as np
import pytest
from helpers.oracles import loaded
from helpers.stepping import decode
from helpers.tiers import thorough_but

from mks.backends.reference import ReferenceDecoder

NAMES = ("qwen3_tiny", "qwen38_tiny", "kimi_k3_tiny")
LENGTH = 150


@cache
def decoder(name, span=16, context=200):
    """One decoder a checkpoint, as programs take seconds to compile."""
    model = loaded(name)
    return ReferenceDecoder(model.instance, model.weights, rows=3, context=context, chunk=48, span=span)


def ids(serving):
    return [int(token) for token in np.random.default_rng(0).integers(0, serving.vocab, LENGTH)]


def read(serving, row, ids, pieces, start=0):
    """The last logits of `ids[start:]` read in `pieces`, repeated as needed."""
    while start < len(ids):
        for piece in pieces:
            part = ids[start : start + piece]
            if part:
                out = serving.prefill(row, part, start, last_only=True)
                start += len(part)
    return out


@pytest.mark.parametrize("name", thorough_but(("qwen3_tiny",), NAMES))
def test_where_a_prompt_is_cut_leaves_no_trace(name):
    """Pieces of every size, in any row and beside others, give the same bits."""
    serving = decoder(name)
    tokens = ids(serving)
    whole = read(serving, 0, tokens, [48])
    for row, pieces in ((1, [1]), (2, [16]), (0, [5, 31, 17]), (1, [47, 2])):
        assert np.array_equal(read(serving, row, tokens, pieces), whole)


@pytest.mark.parametrize("name", thorough_but(("qwen3_tiny",), NAMES))
@pytest.mark.parametrize("at", [1, 40, 130, LENGTH - 1])
def test_a_restored_row_goes_on_as_if_it_had_read_everything(name, at):
    """In another row that held something else, for prefill and for decoding."""
    serving = decoder(name)
    tokens = ids(serving)
    whole = read(serving, 0, tokens, [48])
    step = decode(serving, [7, 0, 0], [LENGTH, 0, 0], [True, False, False])[0]

    read(serving, 1, tokens[:at], [48])
    saved = serving.save(1)
    assert saved.length == at
    assert saved.nbytes > 0
    read(serving, 1, tokens[::-1], [48])
    read(serving, 2, tokens[::-1], [48])
    serving.restore(2, saved, at)
    assert np.array_equal(read(serving, 2, tokens, [9], at), whole)
    assert np.array_equal(decode(serving, [0, 0, 7], [0, 0, LENGTH], [False, False, True])[2], step)


def test_caches_can_be_cut_and_states_cannot():
    """A part of an attention model's row can be restored, of a recurrent model's none."""
    serving = decoder("qwen3_tiny")
    tokens = ids(serving)
    whole = read(serving, 0, tokens, [48])
    read(serving, 1, tokens[:100] + tokens[:20], [48])
    assert serving.cuts
    serving.restore(2, serving.save(1), 100)
    assert np.array_equal(read(serving, 2, tokens, [48], 100), whole)

    recurrent = decoder("qwen38_tiny")
    assert not recurrent.cuts
    read(recurrent, 1, tokens[:20], [48])
    with pytest.raises(ValueError, match="cannot restore 19"):
        recurrent.restore(2, recurrent.save(1), 19)


def test_what_would_leave_a_trace_is_not_saved():
    """After decoding, after logits of every position, and where several programs read prompts."""
    serving = decoder("qwen3_tiny")
    serving.prefill(0, [1, 2, 3], 0, last_only=True)
    assert serving.save(0).length == 3
    decode(serving, [1, 0, 0], [3, 0, 0], [True, False, False])
    assert serving.save(0) is None
    serving.prefill(0, [1, 2, 3], 0, last_only=True)
    serving.prefill(0, [4], 3)
    assert serving.save(0) is None
    serving.prefill(0, [5], 4, last_only=True)
    assert serving.save(0) is None
    several = decoder("qwen3_tiny", None)
    several.prefill(0, [1, 2, 3], 0, last_only=True)
    assert several.save(0) is None


def test_a_reset_mends_what_a_failed_call_used_up():
    """Rows are empty only where their memory is gone; new sequences give the same as before."""
    serving = decoder("qwen38_tiny")
    tokens = ids(serving)
    whole = read(serving, 0, tokens, [48])
    with pytest.raises(ValueError, match="cannot read"):
        serving.prefill(0, tokens, 0)
    assert serving.reset()
    assert serving.save(0).length == LENGTH

    for array in serving._states.values():
        array.delete()
    with pytest.raises(RuntimeError):
        serving.prefill(0, [1], LENGTH)
    assert not serving.reset()
    assert serving.save(0) is None
    assert np.array_equal(read(serving, 0, tokens, [48]), whole)


def test_wrong_calls():
    """Rows that there are not, and what a decoder with another context has saved; no row is changed by them."""
    serving, other = decoder("qwen3_tiny"), decoder("qwen3_tiny", context=400)
    whole = read(serving, 1, [1, 2, 3], [3])
    read(other, 0, [1, 2, 3], [3])
    saved = serving.save(1)
    for row in (-1, 3, 1.0, None):
        with pytest.raises(ValueError, match="row"):
            serving.save(row)
        with pytest.raises(ValueError, match="row"):
            serving.restore(row, saved, 3)
    with pytest.raises(ValueError, match="another model, context or chunk"):
        serving.restore(1, other.save(0), 3)
    with pytest.raises(ValueError, match="there is no row 3, they are 0 to 2"):
        serving.step([[], [7], []], [0, 3, 0], [3])
    with pytest.raises(ValueError, match=f"there is no token {serving.vocab}"):
        serving.step([[], [serving.vocab], []], [0, 3, 0])
    assert serving.save(1).length == 3
    serving.restore(2, saved, 2)
    assert np.array_equal(read(serving, 2, [1, 2, 3], [1], start=2), whole)
