"""Movement changes no bit: kernels with and without each construct, interpreted with races detected.

`pytest -m slow tests/backends/pallas/emit/test_kernel_movement.py` runs all constructs in both working types, some
minutes.
"""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
from attrs import frozen
from helpers.cases import Case, lowered
from helpers.kernels import Found, run, same
from helpers.tiers import thorough_but
from helpers.toys import DELTA, DENSE, MOE

from mks.dsl.program.print.text import words

ONE = "target v5e 1x1\ncontext 512\n"
TWO = "target tpu7x 1x1x1\ncontext 512\nmesh tp = 2\n"
# One row has two tiles of its cache behind it, the other some tokens.
STEPS = (((17, 250), (300, 7)),)


@frozen
class Shares:
    """A model on one or two cores, without any movement."""

    text: str
    lines: str

    @property
    def cores(self) -> int:
        """How many."""
        return 2 if "tp = 2" in self.lines else 1


BARE = {
    "dense": Shares(DENSE, ONE),
    "delta": Shares(DELTA, ONE),
    "delta on two": Shares(DELTA, TWO + "shard tp : q_heads, kv_heads, k_heads, v_heads, ffn, vocab\n"),
    "moe on two": Shares(
        MOE, TWO + "shard tp : heads, moe, shared, vocab\nsplit mla.q_a, mla.kv_a, moe.router, moe.z_down over tp\n"
    ),
}


def stream(slots: int, *lines: str, name: str = "all", slot: int = 2560) -> str:
    return "stream {} {{\nslots = {}\nslot = {} KiB\n{}\n}}\n".format(name, slots, slot, "\n".join(lines))


def tiles(part: str, point: str, slots: int) -> str:
    return f"prefetch {part}.cache at {point} (tile = 256 tokens, slots = {slots})\n"


ATTENTION, MLP, OUT = "attention : (wq, wk, wv), wo", "mlp : (gate, up), down", "step : out"
NET = ("delta : (wq, wk, wv, wz, wb, wa), wo", ATTENTION, MLP, OUT)
EXPERTS = ("mla : (q_a, kv_a), q_b, kv_b, wo", "moe : (router, z_down, s_gate, s_up), s_down, z_up", OUT)
TOGETHER = "gather (moe.score, moe.z)\ngather (mla.qa, mla.c, mla.s)\n"
INSIDE = "overlap gather moe.score, moe.z with (moe.s_gate, moe.s_up), moe.s_down\n"
VECTORS = "prefetch vectors at previous part\n"
MOVED = {
    "dense": {
        "3 slots": stream(3, ATTENTION, MLP, OUT),
        "4 slots": stream(4, ATTENTION, MLP, OUT),
        "12 slots": stream(12, ATTENTION, MLP, OUT),
        "two streams": stream(3, ATTENTION) + stream(4, MLP, OUT, name="other"),
        "a part in a stream": stream(3, MLP),
        "vectors before the part": VECTORS,
        "vectors before the layer": "prefetch vectors at previous layer\n",
        "a cache at the start, one slot": tiles("attention", "attention.start", 1),
        "a cache at the start, three slots": tiles("attention", "attention.start", 3),
        "a cache in longer tiles": "prefetch attention.cache at attention.start (tile = 512 tokens, slots = 1)\n",
        "a cache after a value": tiles("attention", "after attention.x", 2),
        "a weight at the start": "prefetch mlp.down at mlp.start\n",
        "a weight before a value": "prefetch mlp.down at before mlp.a\n",
        "a weight after a value": "prefetch attention.wo at after attention.q\n",
        "everything": stream(5, MLP, OUT)
        + VECTORS
        + "prefetch attention.wo at attention.start\n"
        + tiles("attention", "attention.start", 2),
    },
    "delta": {
        "a state before the part": "prefetch delta.state at previous mlp.h\n",
        "a state before the layer": "prefetch delta.state at previous layer\n",
        "a state after a value": "prefetch delta.state at after delta.x\n",
        "everything": stream(3, *NET)
        + "prefetch delta.state at previous mlp.h\nprefetch vectors at previous layer\n"
        + tiles("attention", "attention.start", 3),
    },
    "delta on two": {
        "12 slots": stream(12, *NET),
        "everything": stream(3, *NET)
        + "prefetch delta.state at previous mlp.h\n"
        + VECTORS
        + tiles("attention", "attention.start", 2),
    },
    "moe on two": {
        "1 expert at a time": "fetch moe.experts (slots = 1)\n",
        "2 experts": "fetch moe.experts (slots = 2)\n",
        "4 experts": "fetch moe.experts (slots = 4)\n",
        "gathered together": TOGETHER,
        "inside the wait": INSIDE,
        "everything": stream(4, *EXPERTS)
        + TOGETHER
        + "fetch moe.experts (slots = 3)\n"
        + VECTORS
        + tiles("mla", "mla.start", 3)
        + INSIDE,
    },
}
ALL = [(shares, name) for shares, constructs in MOVED.items() for name in constructs]
QUICK = [
    ("dense", "3 slots", "f32"),
    ("dense", "everything", "bf16"),
    ("dense", "a weight before a value", "f32"),
    ("dense", "a cache in longer tiles", "f32"),
    ("delta", "everything", "f32"),
    ("moe on two", "everything", "f32"),
]
SLOW = [
    (shares, name, working)
    for (shares, name), working in product(ALL, ("f32", "bf16"))
    if (shares, name, working) not in QUICK
]


def bare(shares: str, working: str) -> Case:
    """Without the construct."""
    made = BARE[shares]
    return Case(made.text, STEPS, made.lines, working=working, filled=True)


def moved(shares: str, name: str, working: str) -> Case:
    """With it, and with transfers that take no time where the other's come when they are waited for."""
    made = BARE[shares]
    return Case(made.text, STEPS, made.lines + MOVED[shares][name], working=working, filled=True, mode="eager")


@cache
def found(case: Case, cores: int) -> list[Found]:
    """What a case gives."""
    (outcome,) = run([case], cores, 200)
    assert not isinstance(outcome, str), f"{outcome}: {case}"
    return outcome


def said(case: Case) -> str:
    """A case's Program in words, without its title."""
    return words(lowered(case)).partition("\n")[2]


def check(shares: str, name: str, working: str) -> None:
    cores = BARE[shares].cores
    plain, other = bare(shares, working), moved(shares, name, working)
    assert said(plain) != said(other)
    assert same(found(plain, cores), found(other, cores)) == []


@pytest.mark.parametrize(("shares", "name", "working"), thorough_but(QUICK[1:2], QUICK))
def test_movement(shares: str, name: str, working: str) -> None:
    """Ids, logits, states and caches have the same bits with a construct and without it."""
    check(shares, name, working)


@pytest.mark.slow
@pytest.mark.parametrize(("shares", "name", "working"), SLOW)
def test_more_movement(shares: str, name: str, working: str) -> None:
    """All constructs, in both working types."""
    check(shares, name, working)


@pytest.mark.thorough
@pytest.mark.parametrize("shares", dict.fromkeys(shares for shares, *_ in QUICK))
def test_right(shares: str) -> None:
    """And they are those of the reference."""
    for step in found(bare(shares, "f32"), BARE[shares].cores):
        np.testing.assert_allclose(step.logits, step.wanted, rtol=0, atol=1e-4)
        assert (step.ids == step.wanted.argmax(-1)).all()


def test_slot_is_a_maximum() -> None:
    """How large slots may be changes nothing."""
    sizes = {said(Case(DENSE, STEPS, ONE + stream(3, ATTENTION, MLP, OUT, slot=slot))) for slot in (512, 2560, 8192)}
    assert len(sizes) == 1
