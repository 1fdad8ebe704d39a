"""A layer of each kind of Kimi K3 on 32 cores, interpreted, against the reference.

`pytest -m slow tests/backends/pallas/emit/test_kernel_32.py`; sizes are small, for it is the number of heads, cores and
exchanges that matters. Each case takes 2 GB.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import Case, lowered
from helpers.kernels import elsewhere, run
from helpers.schedules import kimi

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]

# KDA with a dense MLP, KDA with experts, MLA with experts; a head for each core. Shares of an expert cut the groups of
# its scales, and of the experts' sum, which is left scattered, four cores have columns.
SIZES = {
    "d": 128,
    "layers": 3,
    "vocab": 320,
    "block": 2,
    "heads": 32,
    "q_lora": 48,
    "kv_lora": 32,
    "nope": 16,
    "common": 8,
    "vdim": 16,
    "kda_heads": 32,
    "key": 16,
    "val": 16,
    "ffn": 256,
    "latent": 512,
    "experts": 64,
    "moe": 64,
    "top": 16,
}
TOKENS, POSITIONS = (11, 3, 200), (129, -1, 5)
CASES = {
    "ep 2 x tp 16, as shipped": (2, 16, "scatter_gather", 1, "on_wait"),
    "ep 4 x tp 8": (4, 8, "scatter_gather", 1, "eager"),
    "ep 4 x tp 8, three rows": (4, 8, "two_level", 3, "on_wait"),
    "ep 2 x tp 16, three rows": (2, 16, "direct", 3, "eager"),
}


def case(name: str) -> Case:
    """One of them; of three rows one is not live."""
    ep, tp, by, rows, mode = CASES[name]
    step = (TOKENS[:rows], POSITIONS[:rows])
    lines = kimi(ep, tp, by=by)
    return Case("kimi_k3", (step,), lines, sizes=tuple(SIZES.items()), mode=mode, filled=True)


@pytest.mark.parametrize("name", CASES)
def test_layers_of_each_kind(name: str) -> None:
    """Logits and states as the reference's, the same ids, and nothing else is touched."""
    made = case(name)
    program = lowered(made)
    assert program.schedule.cores == 32
    assert list(program.phase.layer_parts.values()) == [
        ("enter", "kda", "leave", "dense"),
        ("enter", "kda", "leave", "moe"),
        ("enter", "mla", "leave", "moe"),
    ]
    (found,) = run([made], 32, 1500)
    assert not isinstance(found, str), found
    (step,), ((_, positions),) = found, made.steps
    live = [row for row, position in enumerate(positions) if position >= 0]
    assert np.abs(step.wanted[live]).max() > 0.5
    np.testing.assert_allclose(step.logits[live], step.wanted[live], rtol=0, atol=5e-4)
    assert (step.ids[live] == step.wanted[live].argmax(-1)).all()
    for key, state in step.states.items():
        np.testing.assert_allclose(state, step.wanted_states[key], rtol=5e-4, atol=5e-4, err_msg=key)
    assert elsewhere(step, positions) == []
