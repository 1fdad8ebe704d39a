"""How the decoder uses memory and time, and what it refuses."""

import re
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from attrs import evolve
from helpers.oracles import DATA, answers, loaded, read
from helpers.stepping import decode
from helpers.tiers import thorough_but

from mks.backends.reference import ReferenceDecoder, pending
from mks.backends.reference.compilation import compiled
from mks.backends.reference.passes import passes as cheapest
from mks.dsl.decoder import Decoder

FAMILIES = ("qwen3_tiny", "qwen38_tiny", "kimi_k3_tiny")


def serving(name, **options):
    model = loaded(name)
    return ReferenceDecoder(model.instance, model.weights, **options)


def test_protocol():
    """It is what servers ask for."""
    decoder: Decoder = serving("qwen3_tiny", rows=2, context=64, chunk=16)
    assert (decoder.rows, decoder.context, decoder.chunk, decoder.vocab) == (2, 64, 16, 256)
    assert serving("qwen3_tiny", context=8).chunk == 8


@pytest.mark.parametrize(
    ("name", "rows", "span"),
    thorough_but(
        [("qwen3_tiny", 2, 1), ("qwen3_tiny", 1, 8), ("qwen38_tiny", 2, 1)],
        [
            *((name, *size) for name in ("qwen3_tiny", "qwen38_tiny") for size in ((2, 1), (1, 8), (1, 32))),
            ("kimi_k3_tiny", 2, 1),
        ],
    ),
)
def test_in_place(name, rows, span):
    """Caches and states are updated where they are: all aliased, none copied, and little room besides."""
    decoder = serving(name, rows=2, context=8192, chunk=32)
    program = compiled(decoder.lower(rows, span), rows * span)
    memory = program.memory_analysis()
    assert memory.alias_size_in_bytes == decoder.room.bytes
    assert memory.temp_size_in_bytes < decoder.room.bytes / 10
    shapes = {",".join(map(str, s.shape)) for found in decoder.room.stores.values() for s in found}
    copies = re.findall(r"= \w+\[([\d,]+)\]\S* copy\(", program.as_text())
    assert not shapes & set(copies)


def test_cost_follows_position():
    """A step costs what its position asks for, not what the context would allow."""

    def step(context):
        decoder, times = serving("qwen3_tiny", rows=1, context=context, chunk=8), []
        for position in range(30):
            start = time.process_time()
            decode(decoder, [3], [position], [True])
            times.append(time.process_time() - start)
        return min(times[5:])

    assert step(65536) < 3 * step(128)


def test_depth():
    """Twice the layers make no larger program."""
    model = loaded("qwen38_tiny")

    def size(layers):
        values = {**model.instance.values, "layers": layers, "full": tuple(range(3, layers, 4))}
        instance = evolve(model.instance, values=values)
        empty = (
            (name, layer, np.zeros(instance.shape(weight.shape), np.float32))
            for name, weight in instance.model.weights.items()
            for layer in instance.owner_layers(weight.part) or (None,)
        )
        decoder = ReferenceDecoder(instance, empty, rows=1, context=64, chunk=8)
        return len(decoder.lower(1, 1).as_text().splitlines())

    assert abs(size(16) - size(32)) < 50


def test_prefill_leaves_other_rows_alone():
    """Every other row's caches and states are the same to the bit."""
    decoder, ids = serving("qwen38_tiny", rows=3, context=64, chunk=8), list(answers("qwen38_tiny")["ids"])
    for row in range(3):
        decoder.prefill(row, ids[row : row + 8], 0)
    before = jax.tree.map(np.array, decoder._states)
    decoder.prefill(1, ids[20:27], 0)
    for key, array in decoder._states.items():
        np.testing.assert_array_equal(array[:, [0, 2]], before[key][:, [0, 2]])
        assert not np.array_equal(array[:, 1], before[key][:, 1])


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["qwen3_tiny", "qwen38_tiny"])
def test_products_side_by_side(name):
    """Multiplying weights that share an operand together changes no bit."""
    apart = read("qwen3" if name == "qwen3_tiny" else "qwen38", DATA / name, fuse=False)
    assert len(apart.weights.arrays) > len(loaded(name).weights.arrays)
    ids, found = list(answers(name)["ids"]), []
    for weights in (apart.weights, loaded(name).weights):
        decoder = ReferenceDecoder(apart.instance, weights, rows=1, context=64, chunk=8)
        logits = [decoder.prefill(0, ids[:8], 0), decoder.prefill(0, ids[8:11], 8)]
        logits += [decode(decoder, [ids[i]], [i], [True]) for i in range(11, 20)]
        found.append(np.concatenate(logits))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("count", range(1, 71))
def test_passes(count):
    """Passes cover the tokens in order; only the last one is padded, and no more than it must be."""
    decoder = serving("qwen3_tiny", rows=1, context=128, chunk=70)
    passes = cheapest(count, decoder.spans)
    assert sum(real for _, real in passes) == count
    assert all(span == real for span, real in passes[:-1])
    assert all(span in decoder.spans and real <= span for span, real in passes)


def test_whole_context():
    """The last position can be used; the one after it cannot."""
    decoder, ids = serving("qwen3_tiny", rows=1, context=20, chunk=8), list(answers("qwen3_tiny")["ids"])
    found = [decoder.prefill(0, ids[i : i + 8], i) for i in (0, 8)]
    found += [decoder.prefill(0, ids[16:19], 16), decode(decoder, [ids[19]], [19], [True])]
    np.testing.assert_allclose(np.concatenate(found), answers("qwen3_tiny")["logits"][:20], rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match="positions"):
        decode(decoder, [1], [20], [True])
    with pytest.raises(ValueError, match="cannot read"):
        decoder.prefill(0, ids[:8], 13)


def test_missing_weight():
    """A weight that nobody gave is said, not left as it happens to be."""
    model = loaded("qwen3_tiny")
    with pytest.raises(ValueError, match="weights were not given"):
        ReferenceDecoder(model.instance, [], rows=1, context=16)


@pytest.fixture(params=["host", "device"])
def memory(request, monkeypatch):
    """Steps whose results are the host's already, and such as have to cross, as from a TPU."""
    monkeypatch.setattr(pending, "on_host", lambda array: request.param == "host")


@pytest.mark.usefixtures("memory")
def test_ids_without_logits():
    """The likeliest id of a row comes without its logits, the lowest of equal ones; numbers that are none are said."""
    logits = np.zeros((5, 1, 12), np.float32)
    logits[0, 0, [3, 7]] = 2
    logits[1, 0, 4] = np.inf
    logits[2, 0, 11] = np.nan
    logits[3] = -np.inf
    logits[4] = -1
    logits[4, 0, :3] = (-np.inf, -0.0, 0.0)
    counts = np.array([0, 0, 1, 1, 1, 1, 1, 0])
    every = pending.fetch(8, 2, counts, jnp.asarray(logits), range(8)).wait()
    found = pending.fetch(8, 2, counts, jnp.asarray(logits), (2, 4, 7)).wait()
    assert every.logits.keys() == {2, 3, 4, 5, 6}
    np.testing.assert_array_equal(every.logits[6], logits[4])

    assert [int(found.ids[row, 0]) for row in (2, 6)] == [3, 1]
    assert found.finite[2:7, 0].tolist() == [True, False, False, False, True]
    assert found.logits.keys() == {2, 4}
    np.testing.assert_array_equal(found.logits[4], logits[2])


@pytest.mark.parametrize("name", thorough_but(("qwen3_tiny", "qwen38_tiny"), FAMILIES))
@pytest.mark.usefixtures("memory")
def test_several_tokens_a_row(name):
    """A row's bits do not depend on how many tokens it is given at a time, nor on those that were taken back."""
    decoder = serving(name, rows=3, context=48, chunk=8, tokens_per_row=4)
    ids = list(answers(name)["ids"])
    assert decoder.rewinds

    def read(row, counts, wrong=0):
        decoder.prefill(row, ids[:8], 0)
        found, at = [], 8
        for count in counts:
            bad = [255] * min(wrong, 4 - count)
            tokens, positions = [[] for _ in range(3)], [0] * 3
            tokens[row], positions[row] = ids[at : at + count] + bad, at
            step = decoder.step(tokens, positions, (row,))
            assert step.wait() is step.wait()
            found.append(step.wait().logits[row][:count])
            np.testing.assert_array_equal(step.wait().ids[row, :count], found[-1].argmax(axis=-1))
            at += count
        return np.concatenate(found)

    alone = read(0, [1] * 12)
    np.testing.assert_allclose(alone, answers(name)["logits"][8:20], rtol=0, atol=1e-4)
    np.testing.assert_array_equal(alone, read(2, [4, 1, 3, 2, 2], wrong=2))
    np.testing.assert_array_equal(alone, read(1, [1] * 12, wrong=3))


def test_a_row_rewinds_beside_others():
    """Its last step need not be the decoder's; rows that others leave alone, and those they undo, keep their bits."""
    decoder = serving("qwen38_tiny", rows=3, context=48, chunk=8, tokens_per_row=4)
    ids = list(answers("qwen38_tiny")["ids"])

    def both(*steps):
        for row in (0, 1):
            decoder.prefill(row, ids[row : row + 4], 0)
        found = {}
        for row, tokens, position in steps:
            given, at = [[] for _ in range(3)], [0] * 3
            given[row], at[row] = tokens, position
            found[row] = decoder.step(given, at, [row]).wait().logits[row][0]
        return found

    plain = both((0, [5], 4), (0, [6], 5), (1, [7], 4), (1, [8], 5), (0, [9], 6))
    found = both((0, [5, 6, 2], 4), (1, [7, 1, 1], 4), (1, [8, 3], 5), (0, [9], 6))
    for row in (0, 1):
        np.testing.assert_array_equal(found[row], plain[row])
