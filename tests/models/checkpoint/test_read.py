"""Reading the weights of shipped definitions, compared with the safetensors package and plain decoding."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from mks.dsl.frontend import load_definition
from mks.dsl.model.instantiate import instantiate
from mks.dsl.model.ir import Model
from mks.models.checkpoint.bind import bind
from mks.models.checkpoint.binding import Binding
from mks.models.checkpoint.folder import open_checkpoint
from mks.models.checkpoint.load import load
from mks.models.checkpoint.read import read, read_all

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data"
SHIPPED = [
    ("qwen3", "qwen3_tiny", "f32"),
    ("qwen3", "chat_tiny", None),
    ("qwen38", "qwen38_tiny", "f32"),
    ("qwen38", "qwen38_tp8", "bf16"),
    ("kimi_k3", "kimi_k3_tiny", "f32"),
    ("kimi_k3", "kimi_k3_mxfp4_tiny", "f32"),
    ("kimi_k3", "kimi_k3_mxfp4_tp8", "f32"),
    ("dspark", "dspark_tiny", "f32"),
]


def model(name: str) -> Model:
    """A shipped model."""
    return load_definition(ROOT / "models" / f"{name}.mks").models[name]


def opened(name: str, checkpoint: str) -> Binding:
    """A shipped model bound to test data."""
    binding, found = load(model(name), DATA / checkpoint, adopt=True)
    assert binding is not None, found
    return binding


@pytest.mark.parametrize(("name", "checkpoint", "working"), SHIPPED)
def test_every_weight_of_every_definition_is_read(name: str, checkpoint: str, working: str | None) -> None:
    """All weights come in their declared shape and the instance's dtype, finite, once."""
    binding = opened(name, checkpoint)
    instance = binding.instance
    assert working is None or instance.working == working
    dtypes = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}

    seen = set()
    for entry, array in read_all(binding):
        weight = instance.model.weights[entry.weight]
        assert array.shape == instance.shape(weight.shape)
        assert array.dtype == dtypes[instance.dtype(weight.type)]
        assert np.isfinite(array.astype(np.float32)).all()
        seen.add((entry.weight, entry.layer))
    wanted = {
        (weight.name, layer)
        for weight in instance.model.weights.values()
        for layer in instance.owner_layers(weight.part) or [None]
    }
    assert seen | set(binding.aliases) == wanted


def test_plain_weights_are_the_packages_bit_for_bit() -> None:
    """Bytes are neither copied nor changed where the file holds the type that is wanted."""
    binding, stored = opened("qwen3", "qwen3_tiny"), load_file(DATA / "qwen3_tiny" / "model.safetensors")

    array = read(binding, "attention.wq", 2)

    assert np.array_equal(array, stored["model.layers.2.self_attn.q_proj.weight"])
    assert not array.flags.owndata
    assert not array.flags.writeable


def test_rows_of_a_fused_projection() -> None:
    """q, k and v of a delta layer are consecutive rows, and the convolution's axis of length 1 is dropped."""
    binding, stored = opened("qwen38", "qwen38_tiny"), load_file(DATA / "qwen38_tiny" / "model.safetensors")
    prefix = "model.language_model.layers.1.linear_attn."

    parts = [read(binding, f"delta.{name}", 1) for name in ("wq", "wk", "wv")]
    taps = [read(binding, f"delta.{name}", 1) for name in ("cq", "ck", "cv")]

    assert np.array_equal(np.concatenate(parts), stored[prefix + "in_proj_qkv.weight"])
    assert np.array_equal(np.concatenate(taps), stored[prefix + "conv1d.weight"][:, 0])


def test_a_vector_that_is_stored_longer() -> None:
    """One decay per head is taken from a longer vector."""
    binding, stored = opened("kimi_k3", "kimi_k3_tiny"), load_file(DATA / "kimi_k3_tiny" / "model.safetensors")

    long = stored["language_model.model.layers.1.self_attn.A_log"]

    assert long.shape == (32,)
    assert np.array_equal(read(binding, "kda.a_log", 1), long[:4])


def test_mxfp4_experts_decode_as_their_format_says() -> None:
    """All experts of a layer, against a table look-up written here."""
    name = "kimi_k3_mxfp4_tp8"
    binding, stored = opened("kimi_k3", name), load_file(DATA / name / "model.safetensors")
    table = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float64)

    found = read(binding, "moe.down", 3)

    assert binding.sources["moe.down", 3].packed
    for expert in range(found.shape[0]):
        stem = f"language_model.model.layers.3.block_sparse_moe.experts.{expert}.w2.weight_"
        packed, scale = stored[stem + "packed"], stored[stem + "scale"]
        codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)
        wanted = table[codes] * 2.0 ** (scale.astype(int) - 127).repeat(32, axis=-1)
        assert np.array_equal(found[expert], wanted)


def test_both_forms_of_kimi_bind_to_one_definition() -> None:
    """Where the packed experts are absent, the plain ones are read."""
    assert opened("kimi_k3", "kimi_k3_mxfp4_tiny").sources["moe.gate", 1].packed
    assert not opened("kimi_k3", "kimi_k3_tiny").sources["moe.gate", 1].packed


SMALL = {
    "d": 64,
    "layers": 3,
    "vocab": 32,
    "q_heads": 4,
    "kv_heads": 2,
    "head": 16,
    "latent": 32,
    "moe": 48,
    "experts": 3,
}


@pytest.fixture
def muse(tmp_path: Path, save_file: Callable[..., None]) -> tuple[Path, dict[str, np.ndarray]]:
    """A small Muse Spark as it is released: the first and last layer's experts plain, the others nvfp4."""
    rng = np.random.default_rng(0)
    bf16 = ml_dtypes.bfloat16
    definition = model("muse_spark")
    instance, found = instantiate(definition, overrides=dict(SMALL))
    assert instance is not None, found
    arrays: dict[str, np.ndarray] = {}
    for weight in definition.weights.values():
        for layer in instance.owner_layers(weight.part) or [None]:
            place: Any = weight.tensors[0]
            if place.scale is None:
                shape = instance.shape(weight.shape)
                kind = np.float32 if weight.codec.name == "f32" else bf16
                arrays[place.name.replace("{layer}", str(layer))] = rng.normal(size=shape).astype(kind)
    for layer in range(3):
        for name, rows, width in (("gate_up_proj", 96, 32), ("down_proj", 32, 48)):
            stem = f"model.language_model.layers.{layer}.mlp.experts.{name}"
            if layer != 1:
                arrays[stem] = rng.normal(size=(3, rows, width)).astype(bf16)
                continue
            arrays[stem] = rng.integers(0, 256, (3, rows, width // 2), np.uint8)
            arrays[stem + "_weight_scale"] = rng.uniform(1, 9, (3, rows, width // 16)).astype(ml_dtypes.float8_e4m3fn)
            halves = 2 if name == "gate_up_proj" else 1
            arrays[stem + "_weight_scale_2"] = rng.uniform(0.1, 1, (3, halves)).astype(np.float32)
    save_file(tmp_path / "model.safetensors", arrays)
    return tmp_path, arrays


def test_muse_spark_mixes_plain_and_packed_layers(muse: tuple[Path, dict[str, np.ndarray]]) -> None:
    """Each layer is read in the form in which it is stored; gate and up have a global scale each."""
    folder, arrays = muse
    checkpoint, _ = open_checkpoint(folder)
    assert checkpoint is not None
    instance, _ = instantiate(model("muse_spark"), overrides=dict(SMALL))
    assert instance is not None

    binding, found = bind(instance, checkpoint)

    assert binding is not None, found
    assert [binding.sources["moe.up", layer].packed for layer in range(3)] == [False, True, False]
    stem = "model.language_model.layers.{}.mlp.experts.gate_up_proj"
    assert np.array_equal(read(binding, "moe.up", 2), arrays[stem.format(2)][:, 48:])
    table = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    packed, scale = arrays[stem.format(1)], arrays[stem.format(1) + "_weight_scale"].astype(np.float32)
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(3, 96, 32)
    values = table[codes] * scale.repeat(16, axis=-1)
    for name, half in (("gate", 0), ("up", 1)):
        spread = arrays[stem.format(1) + "_weight_scale_2"][:, half, None, None]
        wanted = (values[:, 48 * half : 48 * half + 48] * spread).astype(ml_dtypes.bfloat16)
        assert np.array_equal(read(binding, f"moe.{name}", 1), wanted)
