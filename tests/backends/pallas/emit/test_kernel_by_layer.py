"""Numbers that depend on the layer: options of every op that has some, and factors; kernels beside the reference."""

from __future__ import annotations

import pytest
from helpers.cases import Case, lowered
from helpers.kernels import run, wrong

from mks.backends.pallas.emit.call import scalar_tables
from mks.dsl.diagnostics import MksError

TEXT = """mks 1

model t {
  size d = 64
  size n = 2
  size w = 32
  size layers = 3
  size experts = 4
  size moe = 32
  size vocab = 200
  list full = 1 .. layers by 2
  weights {
    embed : bf16[vocab, d] "e"
  }
  part attention {
    weights "{layer}." {
      a, b, c : bf16[n * w, d] "{name}"
      o : bf16[d, n * w] "o"
    }
    cache { keys, values : bf16[n, w] }
    x = rms_norm(h, 1, (1.0 when layer == 1 else 0.01)) * (0.5 when layer in full else 1 + 0.25 * layer)
    k = l2_norm(heads(a @ x, n), 0.1 + 0.1 * layer)
    keys[position] = rope(k, position, theta = (1e4 when layer in full else 1e6))
    values[position] = heads(b @ x, n)
    q = rope(heads(c @ x, n), position, theta = (1e4 when layer in full else 1e6))
    y = attend(q, keys, values, scale = (1 when layer == 1 else w ** -0.5))
    h = h + o @ flat(y) * (2 when layer == 2 else 1)
  }
  part moe {
    weights "{layer}." {
      router : bf16[experts, d] "router"
      gate, up : bf16[experts, moe, d] "{name}"
      down : bf16[experts, d, moe] "down"
    }
    score = f32(router @ h)
    chosen = route(score, 0, 2, eps = 0.1 / (layer + 1), scale = 1 + layer / 2)
    h = h + experts(h, chosen) { e -> down[e] @ (silu(gate[e] @ h) * (up[e] @ h)) }
  }
  step {
    h = embed[token]
    for layer in 0 .. layers {
      attention
      moe when layer > 0
    }
    logits = f32(embed @ h)
  }
}
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("      moe when layer > 0\n", ""),
        pytest.param(TEXT, marks=pytest.mark.slow),
    ],
    ids=["attention", "attention and routes"],
)
def test_every_layer_has_its_own(text: str) -> None:
    """Norms, rotary embeddings, attention, routes and factors; a table of whole numbers, and one of others."""
    case = Case(text, (((17, 199), (9, 40)),), filled=True)
    tables = scalar_tables(lowered(case))
    (found,) = run([case], seconds=600)

    assert wrong(found) == []
    assert {(table.dtype.name, len(table)) for table in tables.values()} == {("int32", 5), ("float32", 5)}


@pytest.mark.parametrize(
    ("here", "there", "said"),
    [
        ("route(score, 0, 2, eps", "route(score, 0, 2, groups = (1 when layer == 1 else 2), eps", "`groups`"),
    ],
)
def test_what_must_be_the_same(here: str, there: str, said: str) -> None:
    """What decides how a kernel is built is refused at its place."""
    with pytest.raises(MksError, match=said) as refused:
        lowered(Case(TEXT.replace(here, there), (((1,), (0,)),)))

    (found,) = refused.value.diagnostics
    assert found.code == "E901"
    assert found.primary is not None
    assert found.primary.span.text == "1 when layer == 1 else 2"
