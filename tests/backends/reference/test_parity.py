"""The definitions give the answers of independent implementations, however the tokens are fed."""

import json
from functools import cache

import jax
import numpy as np
import pytest
from helpers.oracles import DATA, FAMILIES, answers, loaded, read
from helpers.stepping import decode
from helpers.tiers import thorough_but

from mks.backends.reference import ReferenceDecoder, Weights, forward
from mks.models.demo import default_checkpoint

NAMES = tuple(FAMILIES)
FEW = ("qwen3_tiny", "qwen38_tiny")
ROWS = 3


@cache
def decoder(name):
    """One decoder a checkpoint, as programs take seconds to compile; every test begins its rows anew."""
    model = loaded(name)
    return ReferenceDecoder(model.instance, model.weights, rows=ROWS, context=128, chunk=8)


def fed(decoder, row, ids, chunk, start=0):
    """Logits of `ids` read by chunks."""
    found = [decoder.prefill(row, ids[i : i + chunk], start + i) for i in range(0, len(ids), chunk)]
    return np.concatenate(found)


def close(name, found, ids_from=0):
    wanted = answers(name)["logits"]
    np.testing.assert_allclose(found, wanted[ids_from : ids_from + len(found)], rtol=0, atol=FAMILIES[name][1])


@pytest.mark.parametrize("name", thorough_but(FEW, NAMES))
def test_whole_prompt(name):
    """One pass over the whole prompt gives the oracle's logits at every position."""
    model, ids = loaded(name), np.asarray(answers(name)["ids"], np.int32)
    places = model.weights.slices
    program = jax.jit(lambda arrays, ids: forward(model.instance, Weights(arrays, places), ids))
    close(name, program(model.weights.arrays, ids))


@pytest.mark.parametrize("chunk", thorough_but((8,), (1, 3, 8)))
@pytest.mark.parametrize("name", thorough_but((*FEW, "kimi_k3_mxfp4_tiny"), NAMES))
def test_chunks(name, chunk):
    """A prompt read by chunks of any size gives the oracle's logits at every position."""
    close(name, fed(decoder(name), 1, list(answers(name)["ids"]), chunk))


@pytest.mark.parametrize("row", thorough_but((1,), range(ROWS)))
@pytest.mark.parametrize("name", thorough_but(FEW, NAMES))
def test_any_row(name, row):
    """Token by token, beside rows at other positions that come and go, a row gives the oracle's logits."""
    ids, serving = list(answers(name)["ids"]), decoder(name)
    others = [r for r in range(ROWS) if r != row]
    at = dict.fromkeys(others, 0)
    for r in others:
        at[r] = 5 * (r + 1)
        fed(serving, r, ids[10 : 10 + at[r]], 8)
    found = []
    for position, token in enumerate(ids):
        tokens, positions, live = [0] * ROWS, [0] * ROWS, [False] * ROWS
        tokens[row], positions[row], live[row] = token, position, True
        for r in others:
            # One of the others pauses now and then.
            if (position + r) % 3:
                tokens[r], positions[r], live[r] = ids[-1 - at[r] % 7], at[r], True
                at[r] += 1
        found.append(decode(serving, tokens, positions, live)[row])
    close(name, np.stack(found))


@pytest.mark.parametrize("name", thorough_but((*FEW, "kimi_k3_mxfp4_tiny"), NAMES))
def test_greedy(name):
    """Greedy decoding from the first ids gives the oracle's."""
    wanted, serving = [int(i) for i in answers(name)["gen"]], decoder(name)
    prompt = next(n for n in range(1, len(wanted)) if wanted[n] != answers(name)["ids"][n])
    out = list(wanted[:prompt])
    token = int(fed(serving, 2, out, 8)[-1].argmax())
    while len(out) < len(wanted):
        out.append(token)
        token = int(decode(serving, [0, 0, token], [0, 0, len(out) - 1], [False, False, True])[2].argmax())
    assert out == wanted


@pytest.mark.parametrize("name", thorough_but(("qwen38_tiny",), ("qwen38_tiny", "kimi_k3_tiny")))
def test_row_is_not_disturbed(name):
    """A row's logits are the same to the bit whatever the other rows hold or do."""
    ids, serving = list(answers(name)["ids"]), decoder(name)

    def run(others):
        fed(serving, 0, ids[:11], 8)
        if others:
            fed(serving, 1, ids[20:37], 8)
        found = []
        for i in range(11, 20):
            found.append(decode(serving, [ids[i], 7, 9], [i, i + 6, 0], [True, others, others and i == 13])[0])
            if others and i == 15:
                fed(serving, 2, ids[5:30], 8)
        return np.stack(found)

    alone, among = run(False), run(True)
    np.testing.assert_array_equal(alone, among)


@pytest.mark.parametrize("name", thorough_but(("qwen38_tiny",), ("qwen38_tiny", "kimi_k3_tiny")))
def test_beginning_again(name):
    """Position 0 forgets what the row held."""
    ids, serving = list(answers(name)["ids"]), decoder(name)
    first = fed(serving, 1, ids[:8], 8)
    fed(serving, 1, ids[8:20], 8, start=8)
    np.testing.assert_array_equal(first, fed(serving, 1, ids[:8], 8))


@pytest.mark.parametrize("name", thorough_but(("qwen38_tiny",), ("qwen38_tiny", "kimi_k3_tiny")))
def test_last_only(name):
    """The last id's logits alone are those that the whole pass gives, and the states end up the same."""
    ids, serving = list(answers(name)["ids"]), decoder(name)
    whole = serving.prefill(0, ids[:6], 0)
    after = decode(serving, [ids[6], 0, 0], [6, 0, 0], [True, False, False])[0]
    last = serving.prefill(0, ids[:6], 0, last_only=True)
    assert last.shape == (1, serving.vocab)
    np.testing.assert_allclose(last[0], whole[5], rtol=0, atol=1e-5)
    np.testing.assert_allclose(decode(serving, [ids[6], 0, 0], [6, 0, 0], [True, False, False])[0], after, atol=1e-5)


def test_smollm2():
    """SmolLM2 answers three chats with exactly the ids of two other engines."""
    path, found = default_checkpoint("smollm2")
    assert path is not None, found
    model = read("smollm2", path)
    serving = ReferenceDecoder(model.instance, model.weights, rows=1, context=512, chunk=64)
    for chat in json.loads((DATA / "smollm2" / "greedy.json").read_text("utf-8")):
        ids, out = chat["prompt_ids"], []
        logits = serving.prefill(0, ids, 0, last_only=True)
        while len(out) < len(chat["out_ids"]):
            out.append(int(logits[-1].argmax()))
            logits = decode(serving, [out[-1]], [len(ids) + len(out) - 1], [True])
        assert out == chat["out_ids"]
