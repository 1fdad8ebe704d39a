"""A part that stands twice in a layer, beside the reference: weights and small weights of the layer both times."""

from __future__ import annotations

import pytest
from helpers.cases import Case, lowered
from helpers.kernels import run, wrong
from helpers.toys import DENSE

from mks.backends.pallas.emit.call import layer_table
from mks.dsl.diagnostics import MksError
from mks.dsl.program import ir as p
from mks.dsl.program.verify.prove import prove

TWICE = DENSE.replace("      attention\n      mlp\n", "      mlp\n      attention\n      mlp\n")
STEPS = (((17, 250), (0, 7)), ((3, 4), (1, 8)))
STREAM = """target v5e 1x1
context 256
stream all {
slots = 3
slot = 2560 KiB
mlp : (gate, up), down
attention : (wq, wk, wv), wo
}
prefetch vectors at attention.start
"""


def test_weights_pass_twice_and_arrays_have_each_layer_once() -> None:
    """The tape holds the part where it stands; the layer table counts its layers."""
    program = lowered(Case(TWICE, STEPS, STREAM))

    assert [str(name) for name, layer in program.transfers(p.StreamRef("all")) if layer == 1] == [
        "mlp.gate+up",
        "mlp.down",
        "attention.wq+wk+wv",
        "attention.wo",
        "mlp.gate+up",
        "mlp.down",
    ]
    (vectors,) = (array for array in program.arrays.values() if array.kind == "vectors" and array.part == "mlp")
    assert vectors.shape[0] == program.entries("mlp") == 3
    assert program.times("mlp") == 6
    assert layer_table(program)[1:4].tolist() == [[0, i, 0, i, 0, i] for i in range(3)]
    assert prove(program) == []


@pytest.mark.thorough
@pytest.mark.parametrize("lines", ["target v5e 1x1\ncontext 256", STREAM], ids=["bare", "stream"])
def test_kernel(lines: str) -> None:
    """Logits and caches are those of the reference."""
    (found,) = run([Case(TWICE, STEPS, lines)], seconds=600)

    assert wrong(found) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("      mlp\n      attention\n      mlp\n", "      attention\n      mlp\n      attention\n"),
        ("      attention\n      mlp\n", "      attention\n      mlp when layer > 0\n"),
    ],
)
def test_what_cannot_stand_twice(old: str, new: str) -> None:
    """A part with caches; and one that stands twice in some layers only."""
    with pytest.raises(MksError, match="E901"):
        lowered(Case(TWICE.replace(old, new), STEPS))
