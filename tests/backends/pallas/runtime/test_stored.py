"""Weights as a prompt is read with them, taken out of what the kernels read."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from helpers.cases import Case, model_of, values
from helpers.schedules import BLOCKS, EXPANDED, KIMI, ONE, kimi
from helpers.tiers import thorough_but
from helpers.toys import MOE

from mks.backends.pallas.runtime.packed_weights import packed_weights
from mks.dsl.program.lower.lower import lower
from mks.models.packing import operands

SIZES = {
    "d": 128,
    "layers": 3,
    "vocab": 320,
    "block": 2,
    "heads": 4,
    "q_lora": 48,
    "kv_lora": 32,
    "nope": 16,
    "common": 8,
    "vdim": 16,
    "kda_heads": 4,
    "key": 16,
    "val": 16,
    "ffn": 256,
    "latent": 384,
    "experts": 8,
    "moe": 64,
    "top": 4,
}
CASES = {
    "plain": ("kimi_k3", "kimi_k3_tiny", ONE),
    "mxfp4": ("kimi_k3", "kimi_k3_mxfp4_tiny", ONE + KIMI),
    "experts over two, each over two": ("kimi_k3", "kimi_k3_mxfp4_tp8", kimi(2, 2)),
    "each over eight": ("kimi_k3", "kimi_k3_mxfp4_tp8", kimi(1, 8)),
    "blocks": ("kimi_k3", "kimi_k3_mxfp4_tiny", ONE + KIMI + BLOCKS),
    "down in blocks, each over eight": (
        "kimi_k3",
        "kimi_k3_mxfp4_tp8",
        kimi(1, 8) + "store moe.down as fp8 block 128\n",
    ),
    "drawn": (MOE, "", ONE),
    "a sum left scattered, of which one core has none": ("kimi_k3", "", kimi(2, 2), SIZES),
    "expanded": ("kimi_k3", "kimi_k3_mxfp4_tp8", kimi(2, 4) + EXPANDED),
    "expanded, drawn": (MOE, "", ONE + EXPANDED),
}


@pytest.mark.parametrize("name", thorough_but(("mxfp4", "down in blocks, each over eight", "drawn"), CASES))
def test_every_weight_is_what_was_packed(name: str) -> None:
    """Those in two products too, and each of the routed experts; in the last layer that has them."""
    text, folder, lines, *sizes = CASES[name]
    model = model_of(Case(text, (((1,), (0,)),), lines, folder, *(tuple(each.items()) for each in sizes)))
    program = lower(model.schedule, model.instance, 1, model.plain)
    packed = [operands.packed(program, model.stored, core) for core in range(program.schedule.cores)]
    weights = packed_weights(program, {name: jnp.stack([core[name] for core in packed]) for name in packed[0]})
    split = {product.weights for product in program.products.values() if product.piece}
    assert split == (set() if EXPANDED in lines else {("mla.kv_b",)})
    assert weights.banks.keys() == {"moe.gate", "moe.up", "moe.down"}
    for weight, (layer, value) in {weight: (layer, value) for weight, layer, value in values(model)}.items():
        at = (weight, () if layer is None else (layer,), layer)
        if weight in weights.banks:
            for number, matrix in enumerate(value):
                np.testing.assert_array_equal(weights.row(*at, number), matrix, f"{weight} of expert {number}")
        else:
            np.testing.assert_array_equal(weights.get(*at), value, weight)
