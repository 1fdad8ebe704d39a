"""A step works on as few rows as it can, and no bit of an answer tells how many they were."""

import importlib

import numpy as np
import pytest
from helpers.oracles import answers, loaded, read
from helpers.stepping import decode

from mks.backends.reference import ReferenceDecoder
from mks.backends.reference.widths import narrow, window
from mks.models.demo import default_checkpoint

ROWS = 8


def decoder(name):
    model = loaded(name)
    serving = ReferenceDecoder(model.instance, model.weights, rows=ROWS, context=64, chunk=8)
    serving.compile()
    return serving


def test_narrow():
    """Widths below all rows, each of which takes a program."""
    assert [narrow(rows) for rows in (1, 2, 4, 5, 8, 9, 16, 17)] == [
        (),
        (1,),
        (1,),
        (1, 4),
        (1, 4),
        (1, 4, 8),
        (1, 4, 8),
        (1, 4, 8, 16),
    ]


@pytest.mark.parametrize(
    ("live", "wanted"),
    [
        ({0}, (0, 1)),
        ({7}, (7, 8)),
        ({0, 1}, (0, 4)),
        ({6, 7}, (4, 8)),
        ({3, 6}, (3, 7)),
        ({0, 4}, (0, 8)),
        (set(), (0, 1)),
    ],
)
def test_window(live, wanted):
    """The fewest neighbours that take in every live row, within all rows."""
    assert window([row in live for row in range(ROWS)], (1, 4, ROWS)) == slice(*wanted)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["qwen3_tiny", "qwen38_tiny", "kimi_k3_tiny"])
def test_same_bits(name):
    """A sequence has the same logits to the bit alone, beside a neighbour and among eight."""
    ids, serving = list(answers(name)["ids"]), decoder(name)

    def run(row, others):
        for each in (row, *others):
            serving.prefill(each, ids[each : each + 6], 0)
        found = []
        for i in range(6, 12):
            live = [each in (row, *others) for each in range(ROWS)]
            found.append(decode(serving, [ids[each + i] for each in range(ROWS)], [i] * ROWS, live)[row])
        return np.stack(found)

    for row in (0, 3, 7):
        alone = run(row, ())
        np.testing.assert_array_equal(alone, run(row, (min(row + 1, 6),)))
        np.testing.assert_array_equal(alone, run(row, set(range(ROWS)) - {row}))


def test_smollm2(monkeypatch):
    """SmolLM2 is decoded at each width; where sums are taken in another order for one row, one row has none."""
    path, found = default_checkpoint("smollm2")
    assert path is not None, found
    model = read("smollm2", path)

    def widths():
        serving = ReferenceDecoder(model.instance, model.weights, rows=ROWS, context=64, chunk=8)
        serving.compile()
        return serving._widths

    assert widths() == (1, 4, ROWS)
    matmul = importlib.import_module("mks.backends.reference.ops.matmul")
    monkeypatch.setattr(matmul, "_strands", lambda count: 1 if count == 1 else 4 if count <= 4 else 3)
    assert widths() == (4, ROWS)
