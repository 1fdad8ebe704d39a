"""Muse Spark at small sizes against numpy: windows by layer, gains, an f32 stream, norms inside experts, the cap."""

from functools import cache
from zlib import crc32

import ml_dtypes
import numpy as np
import pytest
from helpers.definitions import FOLDER
from helpers.muse import Muse
from helpers.oracles import DATA, answers, read
from helpers.stepping import decode
from helpers.tiers import thorough_but

from mks.backends.reference import ReferenceDecoder
from mks.dsl.frontend import load_definition
from mks.dsl.model.instantiate import instantiate

SIZES = {
    "d": 32,
    "layers": 6,
    "vocab": 50,
    "q_heads": 4,
    "kv_heads": 2,
    "head": 8,
    "latent": 16,
    "moe": 12,
    "experts": 6,
    "top": 2,
    "window": 7,
    "used": 44,
}
IDS = [int(i) for i in np.random.default_rng(5).integers(0, 44, 40)]


def r16(x):
    return np.asarray(x, np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)


@cache
def instance(working):
    model = load_definition(FOLDER / "muse_spark.mks").models["muse_spark"]
    found, diagnostics = instantiate(model, overrides=SIZES, working=working)
    assert found is not None, diagnostics
    return found


@cache
def weight(name, layer):
    """Random, and the same in bf16 as in f32, so that both working types have the same weights."""
    shape = instance("f32").shape(instance("f32").model.weights[name].shape)
    values = np.random.default_rng(crc32(f"{name} {layer}".encode())).standard_normal(shape)
    values /= np.sqrt(shape[-1]) if len(shape) > 1 else 3
    if name == "moe.bias":
        values *= 0.1
    return r16(values)


def weights(inst):
    for name, declared in inst.model.weights.items():
        for layer in inst.owner_layers(declared.part) or (None,):
            yield name, layer, weight(name, layer).astype(np.float32)


@cache
def wanted(rounded):
    muse = Muse(SIZES, weight, r16 if rounded else lambda x: x)
    return np.stack([muse.token(token, position) for position, token in enumerate(IDS)])


@cache
def decoder(working):
    return ReferenceDecoder(instance(working), weights(instance(working)), rows=2, context=64, chunk=8)


def fed(decoder, chunk):
    found = [decoder.prefill(1, IDS[i : i + chunk], i) for i in range(0, len(IDS), chunk)]
    return np.concatenate(found)


@pytest.mark.parametrize("chunk", thorough_but((8,), (1, 3, 8)))
def test_prefill(chunk):
    """By chunks, past several windows."""
    found = fed(decoder("f32"), chunk)
    assert np.isneginf(found[:, 44:]).all()
    np.testing.assert_allclose(found[:, :44], wanted(False)[:, :44], rtol=0, atol=2e-4)


def test_storage():
    """Layers with a window and layers without keep their entries in different arrays."""
    stores = {s.key: s for s in decoder("f32").room.stores["attention.keys"]}
    assert {(s.layers, s.last) for s in stores.values()} == {((1, 5), None), ((0, 2, 3, 4), 7)}


def test_decode():
    """Token by token beside another row."""
    serving, found = decoder("f32"), []
    for position, token in enumerate(IDS):
        found.append(decode(serving, [token, 3], [position, position // 2], [True, position % 2 == 0])[0])
    np.testing.assert_allclose(np.stack(found)[:, :44], wanted(False)[:, :44], rtol=0, atol=2e-4)


def test_bf16():
    """Rounded where the definition names values: much nearer to numpy that rounds there than the error of rounding."""
    found, rounded, exact = (x[:, :44] for x in (fed(decoder("bf16"), 8), wanted(True), wanted(False)))
    assert np.abs(found - rounded).mean() < 0.3 * np.abs(rounded - exact).mean()


@pytest.mark.thorough
def test_oracle():
    """A checkpoint as it is released, packed experts between plain ones, against answers that others computed."""
    read_, known = read("muse_spark", DATA / "muse_spark_tiny"), answers("muse_spark_tiny")
    ids, wanted, greedy = (known[name] for name in ("ids", "logits", "gen"))
    decoder = ReferenceDecoder(read_.instance, read_.weights, rows=1, context=128, chunk=16)
    parts = [decoder.prefill(0, [int(i) for i in ids[at : at + 16]], at) for at in range(0, len(ids), 16)]
    found = np.concatenate(parts)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-3)
    token = int(np.argmax(found[-1]))
    for position, expected in enumerate(greedy[len(ids) :], len(ids)):
        assert token == expected
        token = int(np.argmax(decode(decoder, [token], [position], [True])[0]))
