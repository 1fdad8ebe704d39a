"""With bf16 as working type, numbers are rounded where the language says, and nowhere else."""

from functools import cache
from zlib import crc32

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from helpers.definitions import FOLDER
from helpers.muse import rms, turn
from helpers.stepping import decode

from mks.backends.reference import ReferenceDecoder
from mks.backends.reference.rounding import rounded
from mks.dsl.frontend import load_definition
from mks.dsl.model.instantiate import instantiate

SIZES = {"d": 48, "layers": 3, "ffn": 64, "vocab": 60, "q_heads": 6, "kv_heads": 2}
IDS = [int(i) for i in np.random.default_rng(2).integers(0, 60, 24)]

# Where a step of SmolLM2 rounds: named values, operands of products, what is stored.
PLACES = ("x", "q", "keys", "values", "attended", "h", "activated", "normed")


def r16(x):
    return np.asarray(x, np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)


@cache
def instance():
    model = load_definition(FOLDER / "smollm2.mks").models["smollm2"]
    found, diagnostics = instantiate(model, overrides=SIZES)
    assert found is not None, diagnostics
    return found


@cache
def weight(name, layer=None):
    shape = instance().shape(instance().model.weights[name].shape)
    values = np.random.default_rng(crc32(f"{name} {layer}".encode())).standard_normal(shape)
    return r16(values / np.sqrt(shape[-1]) if len(shape) > 1 else 1 + values / 3)


def emulated(places):
    """Logits token by token in f64, rounded at `places` only."""
    at = {place: r16 if place in places else (lambda x: x) for place in PLACES}
    keys, values, found = [[[] for _ in range(SIZES["layers"])] for _ in range(2)] + [[]]
    for position, token in enumerate(IDS):
        h = weight("embed")[token]
        for layer in range(SIZES["layers"]):
            norm, wq, wk, wv, wo = (weight(f"attention.{n}", layer) for n in "norm wq wk wv wo".split())
            x = at["x"](rms(h, 1e-5) * norm)
            q = at["q"](turn((wq @ x).reshape(6, 8), position, 1e5))
            keys[layer].append(at["keys"](turn((wk @ x).reshape(2, 8), position, 1e5)))
            values[layer].append(at["values"]((wv @ x).reshape(2, 8)))
            k, v = (np.repeat(np.stack(c[layer]), 3, axis=1) for c in (keys, values))
            score = np.exp(np.einsum("hw,shw->hs", q, k) * 8**-0.5)
            attended = np.einsum("hs,shw->hw", score / score.sum(-1, keepdims=True), v)
            h = at["h"](h + wo @ at["attended"](attended.reshape(-1)))
            norm, gate, up, down = (weight(f"mlp.{n}", layer) for n in "norm gate up down".split())
            x = at["x"](rms(h, 1e-5) * norm)
            g = gate @ x
            h = at["h"](h + down @ at["activated"](g / (1 + np.exp(-g)) * (up @ x)))
        found.append(weight("out") @ at["normed"](rms(h, 1e-5) * weight("final_norm")))
    return np.stack(found)


@cache
def found():
    weights = (
        (name, layer, weight(name, layer).astype(np.float32))
        for name, declared in instance().model.weights.items()
        for layer in instance().owner_layers(declared.part) or (None,)
    )
    serving = ReferenceDecoder(instance(), weights, rows=1, context=32, chunk=8)
    assert all(array.dtype == jnp.bfloat16 for array in serving.weights.arrays.values())
    by_chunks = np.concatenate([serving.prefill(0, IDS[i : i + 8], i) for i in range(0, 16, 8)])
    return np.concatenate([by_chunks, *(decode(serving, [IDS[i]], [i], [True]) for i in range(16, 24))])


def test_rounds_as_the_language_says():
    """Nearly all logits are those of numpy that rounds at the same places."""
    error = np.abs(found() - emulated(PLACES))
    assert np.median(error) < 1e-3 * np.median(np.abs(emulated(PLACES) - emulated(())))


@pytest.mark.parametrize("place", PLACES)
def test_every_place_counts(place):
    """Leaving one of the roundings out is seen."""
    others = tuple(p for p in PLACES if p != place)
    assert np.median(np.abs(found() - emulated(PLACES))) < 1e-2 * np.median(np.abs(found() - emulated(others)))


def test_rounding_is_kept():
    """XLA would drop a conversion to bf16 and back inside a compiled program."""
    x = jnp.asarray(np.random.default_rng(0).standard_normal(1000), jnp.float32)
    there_and_back = jax.jit(lambda x: rounded(x * 3, "bf16").astype(jnp.float32))
    np.testing.assert_array_equal(there_and_back(x), r16(np.asarray(x * 3)))
