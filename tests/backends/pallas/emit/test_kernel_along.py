"""Ops that read along an axis of which each core has a share: completed as the reference has them, or refused."""

from __future__ import annotations

import pytest
from attrs import evolve
from helpers.cases import Case, lowered
from helpers.kernels import run, wrong
from helpers.toys import DENSE, MOE

from mks.dsl.diagnostics import MksError
from mks.dsl.model import along, rules
from mks.dsl.model.ops import Op, table
from mks.dsl.program.verify.prove import prove

TWO = "target tpu7x 1x1x1\ncontext 256\nmesh tp = 2\n"
FOUR = "target v5e 2x2\ncontext 256\nmesh a = 2, b = 2\n"
# Norms over all heads' channels of queries and keys; of the MLP's, shares that are not as long, and are not zero there.
TEXT = (
    DENSE.replace(
        '      wo   : bf16[d, q_heads * head]   "wo"\n',
        '      wo   : bf16[d, q_heads * head]   "wo"\n      qn : bf16[q_heads * head] "qn"\n'
        '      kn : bf16[kv_heads * head] "kn"\n'
        '      back : bf16[d, kv_heads * head] "back"\n',
    )
    .replace("h = h + wo @", "h = h + back @ (wv @ x) + wo @")
    .replace("rope(heads(wq @ x, q_heads)", "rope(heads(rms_norm(wq @ x, 1 + qn, 1e-5), q_heads)")
    .replace("rope(heads(wk @ x, kv_heads)", "rope(heads(rms_norm(wk @ x, kn, 1e-5), kv_heads)")
    .replace("heads(wv @ x, kv_heads)", "heads(l2_norm(wv @ x, 1e-5), kv_heads)")
    .replace(
        "a = silu(gate @ x) * (up @ x)",
        "u = l2_norm(exp(gate @ x), 1e-5) * rms_norm(exp(up @ x), 1, 1e-5)\n    a = u + softmax(2 * (up @ x))",
    )
    .replace("f32(out @", "f32(mask(out @")
    .replace("final_norm, 1e-5))", "final_norm, 1e-5), 230))")
)
SIZES = (("layers", 1), ("ffn", 201), ("vocab", 299))
STEPS = (((17, 250), (0, 0)),)


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_norms_softmax_and_mask_over_shares() -> None:
    """Each over axes of its own, with shares of 51 and 48 channels, and ids that the table lacks."""
    lines = FOUR + "shard a : vocab\nshard b : q_heads, kv_heads\nshard b, a : ffn\n"
    case = Case(TEXT, (((17, -5, 1000), (0, 0, 0)),), lines, sizes=SIZES)
    (found,) = run([case], devices=4, seconds=600)

    assert prove(lowered(case)) == []
    assert wrong(found) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "lines",
    [
        "shard a, b : q_heads, kv_heads (repeat), ffn, vocab\n",
        "shard b, a : vocab\nshard b : q_heads, kv_heads\nshard a : ffn\n",
        "shard a : q_heads, kv_heads, ffn\nshard b : vocab\n",
    ],
)
@pytest.mark.parametrize("working", ["f32", "bf16"])
def test_over_some_axes(lines: str, working: str) -> None:
    """Where several cores hold the same heads, each counts once."""
    case = Case(TEXT, STEPS, FOUR + lines, sizes=SIZES, working=working)
    (found,) = run([case], devices=4, seconds=600)

    assert prove(lowered(case)) == []
    assert wrong(found, 2e-5 if working == "f32" else 4e-2) == []


BODY = "down[e] @ (silu(gate[e] @ z) * (up[e] @ z))"
NORMED = MOE.replace(BODY, f"rms_norm({BODY}, z_norm, 1e-5)")
REFUSED = {
    "pieces of a share": (
        DENSE.replace("gate, up : bf16[ffn, d]", "both     : bf16[2 * ffn, d]").replace(
            "a = silu(gate @ x) * (up @ x)", "one, two = split(both @ x, ffn, ffn)\n    a = silu(one) * two"
        ),
        "shard tp : ffn",
        "E219",
        "`split` reads along an axis of `2 * ffn`",
        "split(both @ x, ffn, ffn)",
    ),
    "joined shares": (
        DENSE.replace("[d, ffn]", "[d, 2 * ffn]").replace("silu(gate @ x) * (up @ x)", "concat(up @ x, gate @ x)"),
        "shard tp : ffn",
        "E219",
        "`concat` reads along an axis of `ffn`, which is shared out over `tp`",
        "concat(up @ x, gate @ x)",
    ),
    "a head's channels": (
        DENSE,
        "shard tp : head",
        "E219",
        "`heads` reads along an axis of `head`",
        "heads(wq @ x, q_heads)",
    ),
    "a norm inside the experts' body": (
        NORMED,
        "shard tp : moe",
        "E901",
        "complete an expert's sum inside the experts' body",
        BODY,
    ),
    "experts' inputs": (
        MOE,
        "shard tp : latent",
        "E901",
        "complete an expert's sum inside the experts' body",
        "gate[e] @ z",
    ),
    "no expert's matrix in the body": (
        MOE.replace("silu(gate[e] @ z)", "silu(z_down @ x)")
        .replace("bf16[latent, d]", "bf16[moe, d]")
        .replace("z = z_down @ x\n", "z = z_in @ x\n")
        .replace("      z_norm :", '      z_in   : bf16[latent, d] "z_in"\n      z_norm :'),
        "shard tp : vocab",
        "E901",
        "no expert's inside the experts' body",
        "z_down @ x",
    ),
}


def lower_one(text: str, lines: str) -> Case:
    """A case of one layer on two cores."""
    case = Case(text, STEPS, TWO + lines + "\n", sizes=(("layers", 1),))
    lowered(case)
    return case


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_completed_is_refused(name: str) -> None:
    """At its place, with what does not fit."""
    text, lines, code, said, where = REFUSED[name]
    with pytest.raises(MksError) as found:
        lower_one(text, lines)
    (one,) = found.value.diagnostics

    places = [label.span.text for label in (one.primary, *one.others) if label is not None]
    assert (one.code, said in one.message) == (code, True), one.message
    assert any(where in place for place in places)


def test_experts_on_one_core_each() -> None:
    """A norm of what an expert gives is right where each core has whole experts."""
    lower_one(NORMED, "shard tp : experts")


def test_an_op_says_what_it_reads_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed one that says nothing is refused on shares, and one that treats each element alone is not."""
    text = DENSE.replace("silu(gate @ x) * (up @ x)", "scaled(gate @ x)")
    plain = Op("scaled", ("x",), rules.same)
    monkeypatch.setitem(table, "scaled", plain)
    with pytest.raises(MksError, match="`scaled` reads along an axis of `ffn`"):
        lower_one(text, "shard tp : ffn")

    lower_one(text, "shard tp : vocab")
    monkeypatch.setitem(table, "scaled", evolve(plain, along=along.nothing))
    lower_one(text, "shard tp : ffn")
