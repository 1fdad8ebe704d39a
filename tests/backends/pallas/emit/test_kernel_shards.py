"""Every subset and order of a mesh's axes, for everything that can be shared out: kernels beside the reference.

`pytest -m slow tests/backends/pallas/emit/test_kernel_shards.py` gives each kind of share each of them, some minutes;
one mixture of them is in the quick tests of `test_kernel_along.py`.
"""

from __future__ import annotations

import pytest
from helpers.cases import Case, model_of
from helpers.kernels import run, wrong
from helpers.toys import DELTA, DENSE, MOE

from mks.dsl.schedule.shares import Shares
from mks.models.packing.shards import ranges, rank

MESH = "target v5e 2x2\ncontext 512\nmesh a = 2, b = 2\n"
WAYS = ("a", "b", "a, b", "b, a")
STEPS = (((17, 250), (300, 7)), ((299, 3), (301, 8)))


def shards(way: str, *names: str, two: str = "") -> str:
    """Sizes over one of the ways; the two heads of `two` are repeated where there are four cores."""
    every = (*names, *([two + " (repeat)" * ("," in way)] if two else []))
    return f"shard {way} : {', '.join(every)}\n"


def dense(ways: tuple[str, ...]) -> str:
    return shards(ways[0], "vocab") + shards(ways[1], "q_heads", two="kv_heads") + shards(ways[2], "ffn")


def delta(ways: tuple[str, ...]) -> str:
    heads = shards(ways[0], "q_heads", two="kv_heads") + shards(ways[1], "v_heads", two="k_heads")
    return heads + shards(ways[2], "ffn") + shards(ways[3], "vocab")


def moe(ways: tuple[str, ...]) -> str:
    experts = {
        "a": "shard a : experts\nshard b : moe\n",
        "b": "shard b : experts\nshard a : moe\n",
        "a, b": "shard a, b : experts\n",
        "b, a": "shard b, a : moe\n",
    }[ways[0]]
    rows = f"split mla.q_a, mla.kv_a, moe.z_down over {ways[1]}\n"
    return experts + rows + shards(ways[2], "heads", "shared") + shards(ways[3], "vocab")


DRAWN = {
    f"{make.__name__} {turn}": Case(
        text, STEPS, MESH + make(WAYS[turn:] + WAYS[:turn]), filled=True, sizes=(("layers", layers),)
    )
    for make, text, layers in ((dense, DENSE, 1), (delta, DELTA, 2), (moe, MOE, 1))
    for turn in range(4)
}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_shares_over_every_subset() -> None:
    """Each kind of share over each of the axes alone, and over both in either order."""
    found = run(list(DRAWN.values()), devices=4, seconds=600)

    assert {name: wrong(outcome) for name, outcome in zip(DRAWN, found, strict=True)} == {name: [] for name in DRAWN}


def signed(text: str, codec: str) -> str:
    """Experts in a codec, chosen by scores of either sign."""
    text = text.replace("f32(sigmoid(router @ x))", "f32(router @ x)").replace("size moe     = 48", "size moe     = 64")
    for name in ("gate", "up  ", "down"):
        text = text.replace(f"{name}   : bf16[experts", f"{name}   : {codec}[experts")
    return text


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("codec", "working", "within"), [("mxfp4", "bf16", 3e-2), ("mxfp4", "f32", 2e-5), ("bf16", "bf16", 3e-2)]
)
def test_experts_by_negative_weights(codec: str, working: str, within: float) -> None:
    """Of two rows and of three: what a row's experts give does not depend on the sign of its weight."""
    text = signed(MOE, codec)
    steps = ((((17, 250), (0, 0)),), (((17, 250, 3), (0, 0, 0)),))
    found = run([Case(text, each, sizes=(("layers", 1),), working=working) for each in steps], seconds=600)

    assert [wrong(outcome, within) for outcome in found] == [[], []]


@pytest.mark.parametrize("name", DRAWN)
def test_packed_shares_begin_where_ranks_say(name: str) -> None:
    """What packing gives each core is what the kernel takes for its own."""
    model = model_of(DRAWN[name])
    shares = Shares(model.schedule, model.instance)
    experts = {name for names in model.instance.facts.experts.values() for name in names}
    for weight in model.instance.model.weights.values():
        for axis, poly in enumerate(weight.shape):
            cut = shares.over(poly) if weight.name in experts else shares.over_values(poly)
            over = shares.cut_by_use(weight).get(axis) or cut
            length, whole = shares.weight_shape(weight)[axis], model.instance.length(poly)
            for core in range(model.schedule.cores):
                first = rank(model.schedule, core, over) // shares.repeats(poly) * length if over else 0
                assert ranges(weight, shares, core)[axis].start == min(first, whole), weight.name
