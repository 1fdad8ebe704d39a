"""A Program whose caches are shared out by positions beside one whose cores have all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from helpers.schedules import kimi
from helpers.small import Case, program

from mks.backends.timeline.summary import predict
from mks.dsl.diagnostics import MksError
from mks.dsl.program.analysis.memory import bill
from mks.dsl.program.analysis.roofline import traffics
from mks.dsl.program.analysis.traffic import kept, reads
from mks.dsl.program.ir import Program
from mks.dsl.program.print.text import words

CONTEXT = 65536


def made(positions: str, rows: int = 1) -> Program:
    """Kimi's of a few layers on eight cores."""
    lines = kimi(2, 4, positions=positions, context=CONTEXT).replace("slots = 6", "slots = 8")
    return program(Case("kimi_k3", 5, lines, rows, (("vocab", 32768),)))


def named(lines: Iterable[Any]) -> dict[str, int]:
    """Bytes by name."""
    return {line.name: line.bytes for line in lines}


@pytest.mark.parametrize(("positions", "ways"), [("tp", 4), ("ep, tp", 8)])
def test_each_core_has_its_own(positions: str, ways: int) -> None:
    """In HBM, in what is read, in the tiles that are listed, and so in the predicted time."""
    whole, cut = made(""), made(positions)

    assert kept(whole.arrays, "cache") == ways * kept(cut.arrays, "cache")
    read, fewer = (named(reads(each))["caches"] for each in (whole, cut))
    assert read == ways * fewer
    counted, less = (named(traffics(each.shares)[0].read)["caches"] for each in (whole, cut))
    assert counted == ways * less
    assert traffics(whole.shares)[0].flops == traffics(cut.shares)[0].flops
    listed, few = (named(bill(each).smem)["tiles of 128 positions"] for each in (whole, cut))
    assert few < listed
    assert predict(cut, savings=False).step < predict(whole, savings=False).step


def test_short_sequences() -> None:
    """Where all of a sequence is one block, a core reads no less, and the messages cost a little."""
    whole, cut = (predict(made(positions), 200, savings=False).step for positions in ("", "ep, tp"))

    assert whole < cut < 1.2 * whole


def test_words() -> None:
    """`mks plan` says which positions a core has, how the softmaxes meet, and that this is a choice of numerics."""
    said = words(made("tp", 8))

    assert "blocks of 256 in turn over tp: 16,384 positions a core" in said
    assert "shard   tp : moe, position" in said
    assert [line.split()[1:4] for line in said.splitlines() if line.startswith("  mla.attend")] == [
        ["1", "queries", "gather"],
        ["1", "merged", "softmax_merge"],
    ]


def test_keys_of_several_heads() -> None:
    """Only latents are shared out: kernels say so of other caches."""
    lines = "target tpu7x 1x1x1\ncontext 512\nmesh tp = 2\nshard tp : ffn, position\n"
    with pytest.raises(MksError) as found:
        program(Case("smollm2", 1, lines))
    assert [d.code for d in found.value.diagnostics] == ["E901"]
