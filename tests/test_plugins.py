"""Ops and definitions from another installed package."""

import json
import sys
from pathlib import Path

import pytest
from helpers import children

PROJECT = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "mks-extra"
version = "1.0"

[project.entry-points."mks.ops"]
clipped_swiglu = "mks_extra.ops:CLIPPED_SWIGLU"
broken = "mks_extra.ops:ABSENT"

[project.entry-points."mks.reference"]
clipped_swiglu = "mks_extra.reference:clipped_swiglu"

[project.entry-points."mks.definitions"]
tiny = "mks_extra:definition"

[tool.setuptools]
packages = ["mks_extra"]

[tool.setuptools.package-data]
mks_extra = ["*.mks"]
"""
INIT = '''
from pathlib import Path


def definition() -> Path:
    """Where the definition lies."""
    return Path(__file__).with_name("tiny.mks")
'''
OPS = """
from mks.dsl.model.ops import Op
from mks.dsl.model.rules import elementwise

CLIPPED_SWIGLU = Op("clipped_swiglu", ("a", "b"), elementwise, scalars=("limit",), summary="clipped SwiGLU")
"""
REFERENCE = '''
import jax
import jax.numpy as jnp


def clipped_swiglu(a, b, *, limit):
    """silu(min(a, limit)) * clip(b, -limit, limit)."""
    return jax.nn.silu(jnp.minimum(a, limit)) * jnp.clip(b, -limit, limit)
'''
DEFINITION = """mks 1

model tiny {
  size d     = 8
  size vocab = 16
  weights {
    embed : bf16[vocab, d]  "embed"
    gate  : bf16[d, d]      "gate"
    up    : bf16[d, d]      "up"
  }
  step {
    h      = embed[token]
    y      = clipped_swiglu(gate @ h, up @ h, limit = 0.5)
    logits = f32(embed_out @ y)
  }
}
""".replace("embed_out", "out").replace("    up    :", '    out   : bf16[vocab, d]  "out"\n    up    :')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip installed the package."""
    source, target = tmp_path_factory.mktemp("extra"), tmp_path_factory.mktemp("site")
    package = source / "mks_extra"
    package.mkdir()
    (source / "pyproject.toml").write_text(PROJECT)
    for name, text in (("__init__", INIT), ("ops", OPS), ("reference", REFERENCE)):
        (package / f"{name}.py").write_text(text)
    (package / "tiny.mks").write_text(DEFINITION)
    children.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "-t", str(target), "."],
        cwd=source,
        check=True,
        seconds=120,
    )
    return target


def run(site: Path | None, code: str) -> str:
    """The output of a child that sees the package, or does not."""
    environment = {"PATH": "/usr/bin:/bin", "JAX_PLATFORMS": "cpu"} | ({"PYTHONPATH": str(site)} if site else {})
    done = children.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, seconds=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


CHECK = """
import json
from mks.dsl.frontend import check_source
from mks.dsl.source import Source
found = check_source(Source("tiny.mks", %r))
print(json.dumps([d.code for d in found.diagnostics]))
"""


def test_an_op_of_another_package_checks(site: Path) -> None:
    """Known where the package is installed, unknown where it is not."""
    assert json.loads(run(site, CHECK % DEFINITION)) == []
    assert json.loads(run(None, CHECK % DEFINITION)) == ["E105"]


RUN = """
import numpy as np
from mks.backends.reference.decoder import ReferenceDecoder
from mks.dsl.frontend import check_source
from mks.models.library import find_definition
source, _ = find_definition("tiny")
found = check_source(source)
rng = np.random.default_rng(0)
made = {name: rng.normal(size=found.instances["tiny"].shape(w.shape)).astype(np.float32)
        for name, w in found.models["tiny"].weights.items()}
import attrs
instance = attrs.evolve(found.instances["tiny"], working="f32")
decoder = ReferenceDecoder(instance, ((name, None, value) for name, value in made.items()), rows=1, context=4)
got = decoder.prefill(0, [3, 5], 0)[-1]
h = made["embed"][5]
a, b = made["gate"] @ h, made["up"] @ h
a = np.minimum(a, 0.5)
y = a / (1 + np.exp(-a)) * np.clip(b, -0.5, 0.5)
assert np.allclose(got, made["out"] @ y, atol=1e-5), (got, made["out"] @ y)
print("equal")
"""


def test_its_definition_runs(site: Path) -> None:
    """The definition is found by name and the op's own implementation computes it."""
    assert run(site, RUN).strip() == "equal"


def test_a_package_that_fails_is_named(site: Path) -> None:
    """An op that cannot be loaded is an unknown op, with the reason."""
    text = DEFINITION.replace("clipped_swiglu(gate @ h, up @ h, limit = 0.5)", "broken(gate @ h, up @ h)")
    shown = run(site, (CHECK % text).replace("d.code for", "(d.code, *d.notes) for"))
    ((code, note),) = json.loads(shown)
    assert code == "E105"
    assert "`mks_extra.ops:ABSENT` fails: AttributeError" in note
