"""Every subset and order of a mesh's axes, for everything that can be shared out: kernels beside the reference.

`pytest -m slow tests/backends/pallas/test_kernel_shards.py` gives each kind of share each of them, some minutes.
"""

from __future__ import annotations

import pytest
from helpers.cases import Case
from helpers.kernels import run, wrong
from helpers.toys import DELTA, DENSE, MOE

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
    experts = {"a": "shard a : experts\nshard b : moe\n", "b": "shard b : experts\nshard a : moe\n",
               "a, b": "shard a, b : experts\n", "b, a": "shard b, a : moe\n"}[ways[0]]  # fmt: skip
    rows = f"split mla.q_a, mla.kv_a, moe.z_down over {ways[1]}\n"
    return experts + rows + shards(ways[2], "heads", "shared") + shards(ways[3], "vocab")


DRAWN = {
    f"{make.__name__} {turn}": Case(text, STEPS, MESH + make(WAYS[turn:] + WAYS[:turn]), filled=True,
                                    sizes=(("layers", layers),))
    for make, text, layers in ((dense, DENSE, 1), (delta, DELTA, 2), (moe, MOE, 1))
    for turn in range(4)
}  # fmt: skip


def test_shares_over_some_axes() -> None:
    """The look-up, the products and the ids, each over axes of its own; ids that the table lacks take the nearest."""
    case = Case(DENSE, (((17, 299, -5, 1000), (0, 0, 0, 0)),), MESH + dense(("a", "b", "b, a")), sizes=(("layers", 1),))
    (found,) = run([case], devices=4)

    assert wrong(found) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_shares_over_every_subset() -> None:
    """Each kind of share over each of the axes alone, and over both in either order."""
    found = run(list(DRAWN.values()), devices=4, seconds=300)

    assert {name: wrong(outcome) for name, outcome in zip(DRAWN, found, strict=True)} == {name: [] for name in DRAWN}
