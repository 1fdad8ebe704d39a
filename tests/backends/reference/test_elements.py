"""Elements of buffers and of values, against numpy."""

import numpy as np
import pytest
from helpers.stepping import decode

from mks.backends.reference import ReferenceDecoder
from mks.dsl.frontend import check_source
from mks.dsl.source import Source

TEXT = """\
mks 1

model tiny {{
  size d      = 8
  size vocab  = 16
  size layers = 3
  size h      = 4
  weights {{
    embed : f32[vocab, d]  "embed"
  }}
  buffer {{ kept : f32[layers, d] }}
  part each {{
    weights "{{layer}}." {{ w : f32[d, d]  "w" }}
    kept[layer] = x
    x = f32(w @ ({value}))
  }}
  step {{
    x = f32(embed[token])
    for layer in 0 .. layers {{
      each
    }}
    logits = f32(embed @ x)
  }}
}}
"""
RNG = np.random.default_rng(5)
EMBED = RNG.standard_normal((16, 8)).astype(np.float32)
W = RNG.standard_normal((3, 8, 8)).astype(np.float32) / 2
IDS = [int(i) for i in RNG.integers(0, 16, 11)]


def wanted(value, token):
    x, kept = EMBED[token].astype(np.float64), []
    for layer in range(3):
        kept.append(x)
        x = W[layer] @ value(x, kept, layer)
    return EMBED @ x


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("kept[layer // 2]", lambda x, kept, layer: kept[layer // 2]),
        ("kept[0] + x", lambda x, kept, layer: kept[0] + x),
        ("x * x[1]", lambda x, kept, layer: x * x[1]),
        ("x * x[layer]", lambda x, kept, layer: x * x[layer]),
        ("x * x[argmax(x)]", lambda x, kept, layer: x * x[np.argmax(x)]),
        ("x * embed[token][layer]", lambda x, kept, layer: x * kept[0][layer]),
    ],
)
def test_elements(text, value):
    """Each token takes its own element, however many rows and tokens the pass has."""
    found = check_source(Source("tiny.mks", TEXT.format(value=text)))
    assert not found.failed, found.diagnostics
    weights = [("embed", None, EMBED), *(("each.w", layer, w) for layer, w in enumerate(W))]
    decoder = ReferenceDecoder(found.instances["tiny"], weights, rows=2, context=16)
    logits = np.concatenate([decoder.prefill(1, IDS[:8], 0), decode(decoder, [0, IDS[8]], [0, 8], [False, True])[1:]])
    np.testing.assert_allclose(logits, [wanted(value, token) for token in IDS[:9]], rtol=1e-4, atol=1e-4)
