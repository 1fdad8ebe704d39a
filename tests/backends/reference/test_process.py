"""What only a process of its own can show: installed ops, kept programs, memory."""

import os
import sys
from pathlib import Path

import pytest
from helpers import children

TESTS = Path(__file__).parents[2]


def run(code, *paths, **environment):
    """Run Python code in a new process; its output."""
    path = os.pathsep.join(map(str, [TESTS, *paths]))
    done = children.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        seconds=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


OP = """
import jax.numpy as jnp
from mks.dsl.model.ops import Op
from mks.dsl.model.rules import same
row = Op("cube", ("x",), same, summary="x * x * x")
def cube(x):
    return x * x * x
"""

USES_IT = '''
import numpy as np
from mks.backends.reference import ReferenceDecoder
from mks.dsl.frontend import check_source
from mks.dsl.model.instantiate import instantiate
from mks.dsl.source import Source
text = """mks 1
model toy {
  size d = 4
  size vocab = 4
  weights {
    embed : bf16[vocab, d] "embed"
  }
  step {
    logits = f32(cube(embed[token]))
  }
}
"""
found = check_source(Source("toy.mks", text))
assert not found.diagnostics, found.diagnostics
instance, _ = instantiate(found.models["toy"])
decoder = ReferenceDecoder(instance, [("embed", None, np.eye(4) * 2)], rows=1, context=8)
print(decoder.step([[2]], [0], [0]).wait().logits[0].tolist())
'''


def test_installed_op(tmp_path):
    """A package adds an op to the registry and to this backend through entry points."""
    (tmp_path / "cubes.py").write_text(OP, "utf-8")
    info = tmp_path / "cubes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: cubes\nVersion: 1.0\n", "utf-8")
    points = "[mks.ops]\ncube = cubes:row\n\n[mks.reference]\ncube = cubes:cube\n"
    (info / "entry_points.txt").write_text(points, "utf-8")
    assert run(USES_IT, tmp_path).strip() == "[[0.0, 0.0, 8.0, 0.0]]"


COMPILES = """
import logging
from mks.backends.reference import ReferenceDecoder, keep_compiled
folder = keep_compiled()
from helpers import children
from helpers.oracles import loaded
model = loaded("qwen3_tiny")
decoder = ReferenceDecoder(model.instance, model.weights, rows=1, context=64, chunk=8)
decoder.step([[1]], [0]).wait()
print(*sorted(path.name for path in folder.iterdir() if path.name.startswith("jit_program") and "cache" in path.name))
"""


def test_programs_are_kept(tmp_path):
    """A second process finds the program that the first one compiled, and adds none."""
    first = run(COMPILES, XDG_CACHE_HOME=str(tmp_path))
    assert len(first.split()) == 1
    assert run(COMPILES, XDG_CACHE_HOME=str(tmp_path)) == first


LOADS = """
import numpy as np, re
from attrs import evolve
from helpers.oracles import loaded
from mks.backends.reference import ReferenceDecoder, load

def held():
    status = open("/proc/self/status").read()
    return 1024 * int(re.search(r"RssAnon:\\s+(\\d+)", status)[1])

model = loaded("qwen3_tiny").instance
big = evolve(model, values={**model.values, "d": 1024, "ffn": 4096, "layers": 12, "vocab": 16000})
most, before = 0, held()

def values():
    global most
    for name, weight in big.model.weights.items():
        for layer in big.owner_layers(weight.part) or (None,):
            value = np.ones(big.shape(weight.shape), np.float32)
            most = max(most, held())
            yield name, layer, value
            del value

weights = load(big, values())
most = max(most, held())
size = sum(array.nbytes for array in weights.arrays.values())
print((most - before - size) / 2**20, size / 2**20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_of_loading():
    """Beside the weights themselves no more is held than the one at hand and a little."""
    beside, size = map(float, run(LOADS).split())
    assert size > 500
    assert beside < 100
