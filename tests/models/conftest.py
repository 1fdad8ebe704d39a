"""A small definition, and checkpoints written for it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mks.dsl.frontend import check_source
from mks.dsl.model.ir import Model
from mks.dsl.source import Source

TOY = """mks 1

model toy {
  size d      = 8   from hidden_size
  size layers = 2   from num_hidden_layers
  size vocab  = 16  from vocab_size

  weights {
    embed : bf16[vocab, d]  "embed.weight"
    out   : bf16[vocab, d]  "lm_head.weight" or embed
  }
  part mlp {
    weights "layers.{layer}." {
      norm : f32[d]      "norm.weight"
      w    : bf16[d, d]  "w.weight"
    }
    h = h + w @ rms_norm(h, norm, 1e-5)
  }
  step {
    h = embed[token]
    for layer in 0 .. layers {
      mlp
    }
    logits = f32(out @ h)
  }
}
"""


def compiled(text: str, name: str = "toy") -> Model:
    """A model from text that has no errors."""
    definition = check_source(Source("toy.mks", text))
    assert not definition.failed, definition.diagnostics
    return definition.models[name]


@pytest.fixture
def compile_text() -> Callable[..., Model]:
    """Compiles a definition's text."""
    return compiled


@pytest.fixture
def toy() -> Model:
    """The small model."""
    return compiled(TOY)


@pytest.fixture
def toy_text() -> str:
    """Its text."""
    return TOY


def raw_safetensors(header: bytes | Mapping[str, Any], data: bytes = b"", length: int | None = None) -> bytes:
    """A file's bytes from a header, right or wrong, and what follows it."""
    if not isinstance(header, bytes):
        header = json.dumps(header).encode()
    return (len(header) if length is None else length).to_bytes(8, "little") + header + data


@pytest.fixture
def raw() -> Callable[..., bytes]:
    """Builds a safetensors file's bytes."""
    return raw_safetensors


KINDS = {
    "float32": "F32",
    "bfloat16": "BF16",
    "float16": "F16",
    "float64": "F64",
    "uint8": "U8",
    "int8": "I8",
    "int32": "I32",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e8m0fnu": "F8_E8M0",
    "int64": "I64",
}


def save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """A sound safetensors file, written without the code under test."""
    header, data = {}, b""
    for name, array in arrays.items():
        piece = array.tobytes()
        header[name] = {
            "dtype": KINDS[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + len(piece)],
        }
        data += piece
    path.write_bytes(raw_safetensors(header, data))


@pytest.fixture
def save_file() -> Callable[[Path, Mapping[str, np.ndarray]], None]:
    """Writes a safetensors file."""
    return save


@pytest.fixture
def toy_arrays() -> dict[str, np.ndarray]:
    """Weights of the small model, untied, as bf16 (the norms f32)."""
    rng = np.random.default_rng(0)

    def bf16(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(ml_dtypes.bfloat16)

    arrays = {"embed.weight": bf16(16, 8), "lm_head.weight": bf16(16, 8)}
    for layer in range(2):
        arrays[f"layers.{layer}.norm.weight"] = rng.normal(size=8).astype(np.float32)
        arrays[f"layers.{layer}.w.weight"] = bf16(8, 8)
    return arrays


@pytest.fixture
def toy_config() -> dict[str, Any]:
    """A config that agrees with the small model."""
    return {"hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 16, "tie_word_embeddings": False}


@pytest.fixture
def make(tmp_path: Path, toy_arrays: dict[str, np.ndarray], toy_config: dict[str, Any]) -> Callable[..., Path]:
    """Makes a checkpoint folder for the small model; `change` edits the arrays, `config` updates the config."""

    def build(change: Callable[[dict[str, np.ndarray]], Any] | None = None, **config: Any) -> Path:
        folder = tmp_path / "checkpoint"
        folder.mkdir(exist_ok=True)
        arrays = dict(toy_arrays)
        if change is not None:
            change(arrays)
        save(folder / "model.safetensors", arrays)
        (folder / "config.json").write_text(json.dumps(toy_config | config))
        return folder

    return build
