"""Steps whose logits are not all that is multiplied last, and steps without layers."""

from __future__ import annotations

import pytest
from helpers.comparing import compare
from helpers.drawing import Drawn

from mks.dsl.program import ir as p
from mks.dsl.program.verify.prove import prove

SCHEDULE = """
schedule one for small {
  target v5e 1x1
  rows 2
  context 256
}
"""
BESIDE = """mks 1

model small {
  size d      = 64
  size other  = 40
  size layers = 2
  weights {
    embed : bf16[256, d]    "e"
    extra : bf16[other, d]  "x"
  }
  part p {
    weights "{layer}." { w : bf16[d, d]  "w" }
    h = h + w @ h
  }
  step {
    h = embed[token]
    for layer in 0 .. layers {
      p
    }
    y = f32(extra @ h)
    logits = f32(embed @ h)
  }
}
"""
ALONE = """mks 1

model small {
  size d = 64
  weights { embed : bf16[256, d]  "e" }
  step { logits = f32(embed @ embed[token]) }
}
"""


def drawn(text: str) -> Drawn:
    """It for two rows."""
    return Drawn(0, text + SCHEDULE, 2, False, "f32", 1, (3, 250), (0, 100))


@pytest.mark.parametrize("text", [BESIDE, ALONE])
def test_logits_leave_alone(text: str) -> None:
    """A buffer that leaves for the logits holds nothing else, and the proof sees that it does."""
    program = drawn(text).lowered()
    assert isinstance(program, p.Program)
    (emitted,) = (op.buffer for op in program.phase.body if isinstance(op, p.Emit))

    assert prove(program) == []
    assert {view.start for view in program.views.values() if view.buffer == emitted} == {0}


def test_values() -> None:
    """They are the reference's."""
    assert [(found.kind, found.said) for found in compare([drawn(BESIDE), drawn(ALONE)])] == [("same", "")] * 2
