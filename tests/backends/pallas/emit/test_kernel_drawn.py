"""Kernels of drawn sizes, heads, rows and schedules give what the reference gives.

`pytest -m slow tests/backends/pallas/emit/test_kernel_drawn.py` tries many more.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import Case
from helpers.kernels import MODES, elsewhere, run
from helpers.toys import DENSE
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.timeout(3000)

LINES = "target v5e 1x1\ncontext 256\n"
PREFETCHES = (
    "prefetch vectors at previous part\n",
    "prefetch attention.cache at attention.start (tile = 128 tokens, slots = 3)\n",
)
STREAMS = ("attention : (wq, wk, wv), wo", "mlp : (gate, up), down", "step : out")


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A dense model of one to three layers on one core, and a step of it."""
    kv_heads = draw(st.integers(1, 3))
    sizes = {
        "layers": draw(st.integers(1, 3)),
        "d": draw(st.integers(9, 300)),
        "ffn": draw(st.integers(9, 400)),
        "vocab": draw(st.integers(33, 1100).filter(lambda n: n % 128)),
        "kv_heads": kv_heads,
        "q_heads": kv_heads * draw(st.integers(1, 4)),
        "head": 2 * draw(st.integers(2, 72)),
    }
    rows = draw(st.integers(1, 4))
    tokens = draw(st.lists(st.integers(0, sizes["vocab"] - 1), min_size=rows, max_size=rows))
    positions = draw(st.lists(st.integers(-1, 255), min_size=rows, max_size=rows).filter(lambda at: max(at) >= 0))
    parts = draw(st.lists(st.sampled_from(STREAMS), unique=True))
    lines = LINES + "".join(draw(st.lists(st.sampled_from(PREFETCHES), unique=True)))
    if parts:
        lines += "stream some {{\nslots = {}\nslot = 2560 KiB\n{}\n}}\n".format(
            draw(st.integers(4, 9)), "\n".join(parts)
        )
    return Case(
        DENSE,
        ((tuple(tokens), tuple(positions)),),
        lines,
        sizes=tuple(sizes.items()),
        mode=draw(st.sampled_from(MODES)),
        filled=True,
    )


def check(drawn: list[Case]) -> None:
    for case, found in zip(drawn, run(drawn, seconds=200), strict=True):
        assert not isinstance(found, str), (found, case)
        (step,), ((_, positions),) = found, case.steps
        live = [row for row, position in enumerate(positions) if position >= 0]
        np.testing.assert_allclose(step.logits[live], step.wanted[live], rtol=0, atol=1e-4, err_msg=str(case))
        # Draws make ties of logits no more likely than rounding does.
        assert (step.ids[live] == step.logits[live].argmax(-1)).all(), case
        for name, state in step.states.items():
            np.testing.assert_allclose(state, step.wanted_states[name], rtol=0, atol=1e-4, err_msg=f"{name}, {case}")
        assert elsewhere(step, positions) == [], case


# What is drawn is run together, in one child process, and is not made smaller where it fails.
LIKE = settings(
    deadline=None,
    phases=(Phase.generate,),
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.thorough
@settings(LIKE, max_examples=2)
@given(st.lists(cases(), min_size=2, max_size=2))
def test_drawn(drawn: list[Case]) -> None:
    """A few."""
    check(drawn)


@pytest.mark.slow
@settings(LIKE, max_examples=12)
@given(st.lists(cases(), min_size=6, max_size=6))
def test_many_drawn(drawn: list[Case]) -> None:
    """Many."""
    check(drawn)
