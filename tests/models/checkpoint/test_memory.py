"""Loading keeps its promise: anonymous memory is the weights, the largest layer and 300 MB at most."""

import json
import os
import sys
from pathlib import Path

import pytest
from helpers import children

LAYERS, WIDTH, VOCAB = 8, 2048, 8192
PER_LAYER = 4 * WIDTH * WIDTH
MB = 1 << 20
SLACK = 120 * MB  # a third of what is promised, so that one more copy of anything large is seen

TEXT = f"""mks 1

model toy {{
  size d      = {WIDTH}
  size layers = {LAYERS}
  size vocab  = {VOCAB}
  weights {{
    embed : bf16[vocab, d]  "embed"
  }}
  part mlp {{
    weights "l.{{layer}}." {{
      a, b, c, e : CODEC[d, d]  "{{name}}" PLACE
    }}
    h = h + a @ (b @ (c @ (e @ h)))
  }}
  step {{
    h = embed[token]
    for layer in 0 .. layers {{
      mlp
    }}
    logits = f32(embed @ h)
  }}
}}
"""

CHILD = """
import sys
from pathlib import Path

import numpy as np

from mks.dsl.frontend import load_definition
from mks.models.checkpoint.load import load
from mks.models.checkpoint.read import read_all


def memory(kind):
    text = Path("/proc/self/status").read_text()
    return int(text.split(kind + ":")[1].split()[0]) << 10


model = load_definition(sys.argv[1] + "/toy.mks").models["toy"]
binding, found = load(model, sys.argv[1])
assert binding is not None, found
anonymous = shared = held = 0
keep = []
for entry, array in read_all(binding):
    copied = np.array(array)
    if sys.argv[2] == "keep":
        keep.append(copied)
        held += copied.nbytes
    anonymous, shared = max(anonymous, memory("RssAnon")), max(shared, memory("RssFile"))
print(anonymous, shared, held)
"""


def sparse_file(path: Path, tensors: dict[str, tuple[str, list[int], int]]) -> int:
    """A safetensors file of zeros, which takes no room on the disk; its length."""
    header, at = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + at)
    return at


def measure(folder: Path, what: str) -> tuple[int, int, int]:
    """Peak anonymous and mapped memory of a process that reads everything, and the bytes it keeps."""
    run = children.run([sys.executable, "-c", CHILD, str(folder), what], capture_output=True, text=True, seconds=120)
    assert run.returncode == 0, run.stderr
    anonymous, shared, held = map(int, run.stdout.split())
    return anonymous, shared, held


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell a process its memory")
def test_anonymous_memory_of_loading(tmp_path: Path) -> None:
    """600 MB are read layer by layer; neither the file nor a second copy of the weights is ever held."""
    tensors = {"embed": ("F32", [VOCAB, WIDTH], VOCAB * WIDTH * 4)}
    for layer in range(LAYERS):
        for name in "abce":
            tensors[f"l.{layer}.{name}"] = ("F32", [WIDTH, WIDTH], WIDTH * WIDTH * 4)
    total = sparse_file(tmp_path / "model.safetensors", tensors)
    (tmp_path / "toy.mks").write_text(TEXT.replace("CODEC", "bf16").replace("PLACE", ""))
    assert total > 570 * MB

    dropped, shared, _ = measure(tmp_path, "drop")
    kept, _, held = measure(tmp_path, "keep")

    assert held == total
    assert dropped < PER_LAYER * 4 + SLACK
    assert kept < total + PER_LAYER * 4 + SLACK
    # Pages that were read are given back: far less than the file is ever mapped in.
    assert shared < total / 2


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell a process its memory")
def test_anonymous_memory_of_decoding(tmp_path: Path) -> None:
    """Packed weights are decoded one matrix at a time."""
    tensors = {"embed": ("BF16", [VOCAB, WIDTH], VOCAB * WIDTH * 2)}
    for layer in range(LAYERS):
        for name in "abce":
            tensors[f"l.{layer}.{name}"] = ("F8_E4M3", [WIDTH, WIDTH], WIDTH * WIDTH)
            tensors[f"l.{layer}.s{name}"] = ("F32", [WIDTH // 128, WIDTH // 128], 4 * (WIDTH // 128) ** 2)
    sparse_file(tmp_path / "model.safetensors", tensors)
    (tmp_path / "toy.mks").write_text(TEXT.replace("CODEC", "fp8 block 128").replace("PLACE", 'scale "s{name}"'))

    dropped, _, _ = measure(tmp_path, "drop")
    kept, _, held = measure(tmp_path, "keep")

    assert held == 2 * (VOCAB * WIDTH + LAYERS * PER_LAYER)
    assert dropped < PER_LAYER * 2 + SLACK
    assert kept < held + PER_LAYER * 2 + SLACK
