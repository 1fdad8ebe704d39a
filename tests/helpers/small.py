"""Programs of the shipped models with few layers, bare and on schedules with streams and prefetches."""

from __future__ import annotations

import re
from functools import cache

from attrs import frozen
from helpers.definitions import FOLDER, text
from helpers.schedules import EXPANDED, kimi

from mks.dsl.frontend import check_source
from mks.dsl.program.ir import Program
from mks.dsl.program.lower.lower import lower
from mks.dsl.source import Source


@frozen
class Case:
    """A model with some sizes, for so many rows, on a schedule's lines or on its own first schedule."""

    model: str
    layers: int
    lines: str
    rows: int = 1
    sizes: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        slots = re.findall(r"slots = \d+", self.lines)
        how = ", ".join(slots) or ("bare" if self.lines else "as shipped")
        return f"{self.model}, {self.layers} layers, {self.rows} rows, {how}"


@cache
def program(case: Case) -> Program:
    """The Program of a case."""
    source = text(case.model)
    if case.lines:
        source = re.sub(
            r"\nschedule .*", f"\nschedule small for {case.model} {{\n{case.lines}\n}}\n", source, flags=re.S
        )
    for size, length in {"layers": case.layers, **dict(case.sizes)}.items():
        source, edits = re.subn(rf"(size {size} +=) [^ ]+( / q_heads)?", rf"\1 {length}", source)
        assert edits == 1, size
    found = check_source(Source("small.mks", source), FOLDER)
    schedule = found.schedules[found.own_schedules[0]]
    assert schedule is not None, [d.message for d in found.diagnostics]
    return lower(schedule, found.instances[case.model], case.rows)


_ONE = "target v5e 1x1\nrows 1, 8\ncontext 512\n"
_TWO = (
    "target tpu7x 1x1x1\nrows 1, 8\ncontext 512\nmesh tp = 2\n"
    "shard tp : q_heads, kv_heads, k_heads, v_heads, ffn, vocab\n"
)
_WIDE = (("d", 1024), ("ffn", 1024), ("vocab", 2560))
_HEADS = (*_WIDE, ("q_heads", 8), ("kv_heads", 4), ("head", 128))
_GATED = (*_WIDE, ("q_heads", 4), ("kv_heads", 4), ("k_heads", 2), ("v_heads", 4))


def _stream(slots: int, *lines: str) -> str:
    return "stream dense {{\nslots = {}\nslot = 2560 KiB\n{}\n}}\n".format(slots, "\n".join(lines))


_ATTENTION, _MLP = "attention : (wq, wk, wv), wo", "mlp : (gate, up), down"
_DELTA, _OUT = "delta : (wq, wk, wv, wz, wb, wa), wo", "step : out"

CASES = (
    Case("smollm2", 1, _ONE, 1, _HEADS),
    Case("smollm2", 3, _ONE + _stream(1, _ATTENTION, _MLP), 1, _HEADS),
    Case("smollm2", 2, _ONE + _stream(2, _ATTENTION, _MLP, _OUT) + "prefetch vectors at previous part\n", 1, _HEADS),
    Case("qwen3", 2, _ONE, 8, _HEADS),
    Case(
        "qwen3",
        3,
        _ONE + _stream(3, _ATTENTION, _MLP, _OUT) + "prefetch vectors at previous layer\n"
        "prefetch attention.cache at attention.start (tile = 128 tokens, slots = 3)\n",
        1,
        _HEADS,
    ),
    Case("qwen38", 4, _TWO, 1, _GATED),
    Case(
        "qwen38",
        5,
        _TWO + _stream(3, _DELTA, _ATTENTION, _MLP, _OUT) + "prefetch delta.state at previous mlp.h\n"
        "prefetch attention.cache at attention.start (tile = 256 tokens, slots = 3)\n"
        "prefetch vectors at previous part\n"
        "reduce delta.h, attention.h, mlp.h (by = scatter_gather, wire = bf16)\n",
        8,
        _GATED,
    ),
    Case("kimi_k3", 5, "", 1, (("vocab", 32768),)),
    Case("kimi_k3", 5, kimi(2, 4).replace("context 256", "rows 1, 8\ncontext 512") + EXPANDED, 1, (("vocab", 32768),)),
    Case(
        "kimi_k3", 5, kimi(1, 2, positions="tp", context=1024).replace("slots = 6", "slots = 8"), 1, (("vocab", 32768),)
    ),
)
