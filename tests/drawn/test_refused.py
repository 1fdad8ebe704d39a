"""Small definitions that once crashed lowering or the reference: refused, at their place."""

from __future__ import annotations

import pytest
from helpers.drawing import Drawn

TEXT = """mks 1

model small {{
  size d      = 64
  size n      = 2
  size w      = 32
  size layers = 2
  weights {{
    embed : bf16[256, d]  "e"
  }}
  part {part} {{
    weights "{{layer}}." {{
      a : bf16[n * w, d]  "a"
      o : bf16[d, n * w]  "o"
    }}
    cache {{ keys, values : bf16[n, w] }}
    keys[position]   = heads(a @ h, n)
    values[position] = heads(a @ h, n)
    q = heads(a @ h, n)
    h = h + o @ flat({value})
  }}
  step {{
    h = embed[token]
    for layer in 0 .. layers {{
      {part}
    }}
    logits = f32(embed @ h)
  }}
}}

schedule one for small {{
  target v5e 1x1
  context 256
}}
"""
ATTEND = "attend(q, keys, values, scale = 1)"
REFUSED = (
    ("p", "attend(q, keys, keys, scale = 1)", "E901", "attend(q, keys, keys, scale = 1)"),
    ("p", f"{ATTEND} + attend(q, keys, values, scale = 2)", "E901", "attend(q, keys, values, scale = 2)"),
    ("p", f"{ATTEND} + split(concat(q, q), w, w)", "E109", "split(concat(q, q), w, w)"),
    ("step", ATTEND, "E102", "step"),
)


@pytest.mark.parametrize(("part", "value", "code", "where"), REFUSED)
def test_refused(part: str, value: str, code: str, where: str) -> None:
    """By a diagnostic that names the place."""
    made = Drawn(0, TEXT.format(part=part, value=value), 1, False, "f32", 1, (3,), (0,)).lowered()
    assert isinstance(made, tuple)
    assert made[0].code == code
    assert made[0].primary is not None
    assert made[0].primary.span.text == where
