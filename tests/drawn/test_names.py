"""A definition's names are its own: none meets a name that kernels use."""

from __future__ import annotations

import pytest
from helpers.comparing import compare
from helpers.drawing import Drawn

TEXT = """mks 1

model names {
  size d      = 64
  size n      = 2
  size w      = 32
  size layers = 2
  weights {
    embed : bf16[256, d]  "e"
  }
  part ids {
    weights "{layer}." {
      a : bf16[n * w, d]  "a"
      o : bf16[d, n * w]  "o"
    }
    cache { keys, values : bf16[n, w] }
    tokens  = a @ positions
    at      = tokens * 0.5
    kept    = at + 1
    scalars = kept * 0.25
    chosen  = scalars - at
    keys[position]   = heads(a @ positions, n)
    values[position] = heads(chosen, n)
    ids = heads(a @ positions + kept, n)
    positions = positions + o @ flat(attend(ids, keys, values, scale = 1))
  }
  step {
    positions = embed[token]
    for layer in 0 .. layers {
      ids
    }
    logits = f32(embed @ positions)
  }
}

schedule one for names {
  target v5e 1x1
  rows 2
  context 256
  stream lookups {
    slots = 2
    slot  = 2560 KiB
    ids : a, o
  }
}
"""


@pytest.mark.timeout(600)
@pytest.mark.thorough
def test_any_name_may_be_taken() -> None:
    """Carried values, a part's own, parts and streams with the names of what a kernel is given."""
    (found,) = compare([Drawn(0, TEXT, 2, False, "f32", 1, (3, 4), (0, 200))])
    assert (found.kind, found.said) == ("same", "")
