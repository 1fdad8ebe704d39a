"""Shares that fit no weight, or no heads, are refused; those that fit are not."""

from __future__ import annotations

import pytest
from helpers.definitions import FOLDER
from helpers.toys import DENSE, MOE

from mks.dsl.frontend import check_source
from mks.dsl.source import Source

TWO = "target tpu7x 1x1x1\ncontext 256\nmesh tp = 2\nshard tp : "
FOUR = "target v5e 2x2\ncontext 256\nmesh a = 2, b = 2\n"
MIXED = DENSE.replace("      wo   :", '      wx   : bf16[kv_heads * head + d, d]  "wx"\n      wo   :')
GRID = DENSE.replace("gate, up : bf16[ffn, d]", "gate, up : bf16[ffn * kv_heads, d]").replace(
    "bf16[d, ffn]", "bf16[d, ffn * kv_heads]"
)


def said(text: str, lines: str) -> list[tuple[str, str]]:
    """Codes and messages of the errors."""
    name = text.split("model ")[1].split(" ")[0]
    source = f"{text}\nschedule tried for {name} {{\n{lines}\n}}\n"
    found = check_source(Source("case.mks", source), FOLDER)
    return [(d.code, d.message) for d in found.diagnostics if d.severity == "error"]


@pytest.mark.parametrize(
    ("text", "lines", "message"),
    [
        (DENSE, TWO + "q_heads", "`q_heads` is sharded but `kv_heads`, whose 2 heads it shares, is not"),
        (
            DENSE.replace("q_heads  = 4", "q_heads  = 12").replace("kv_heads = 2", "kv_heads = 6"),
            FOUR + "shard a, b : q_heads, kv_heads",
            "core 1 has heads of `q_heads` that read [1, 2] of `kv_heads`, but",
        ),
        (DENSE, TWO + "q_heads, kv_heads, head", "two sizes of one axis of `attention.wq`"),
        (GRID, FOUR + "shard a : ffn\nshard b : q_heads, kv_heads", "two sizes of one axis of `mlp.gate`"),
        (MIXED, TWO + "q_heads, kv_heads", "`kv_heads` is not a factor of the axis `head * kv_heads + d`"),
    ],
)
def test_refused(text: str, lines: str, message: str) -> None:
    """All in the same words as where the shares are cut."""
    found = said(text, lines)

    assert {code for code, _ in found} == {"E213"}
    assert any(message in words for _, words in found), found


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (DENSE, TWO + "q_heads, kv_heads"),
        (DENSE, FOUR + "shard a, b : q_heads\nshard b, a : kv_heads (repeat), ffn, vocab"),
        (MOE, FOUR + "shard a, b : experts\nsplit moe.router over b, a"),  # experts' scores are whole on every core
    ],
)
def test_accepted(text: str, lines: str) -> None:
    """The order in which axes are named makes no difference."""
    assert said(text, lines) == []
