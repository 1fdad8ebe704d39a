"""Whole steps of kernels against the reference and the oracles, interpreted in both DMA modes, with races detected.

`pytest -m slow tests/backends/pallas/emit/test_kernel_parity.py` runs more cores, collectives, rows and layers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.cases import Case, Step
from helpers.kernels import MODES, Found, elsewhere, run
from helpers.oracles import FAMILIES, answers
from helpers.schedules import BLOCKS, EXPANDED, KIMI, ONE, TILES, TOPOLOGIES, kimi
from helpers.tiers import thorough_but

pytestmark = pytest.mark.timeout(3000)

# Of eight rows at most: some at their first token, some around the ends of tiles, some not live.
POSITIONS = (129, -1, 0, 127, 128, 255, 7, -1)
TOKENS = (11, 3, 200, 57, 91, 33, 140, 5)
QWEN38 = (
    "stream dense {\nslots = 5\nslot = 2560 KiB\ndelta : (wq, wk, wv, wz, wb, wa), wo\n"
    "attention : (wq, wk, wv), wo\nmlp : (gate, up), down\nstep : out\n}\n"
    "prefetch delta.state at previous mlp.h\nprefetch vectors at previous part\n" + TILES.format(*["attention"] * 2, 2)
)


def qwen38(cores: int, by: str = "direct", wire: str = "f32") -> str:
    """The lines of a schedule over so many cores."""
    repeat = " (repeat)" if cores > 4 else ""
    return (
        f"target {TOPOLOGIES[cores]}\ncontext 256\nmesh tp = {cores}\n"
        f"shard tp : q_heads, kv_heads{repeat}, k_heads, v_heads, ffn, vocab\n{QWEN38}"
        f"reduce delta.h, attention.h, mlp.h (by = {by}, wire = {wire})\n"
    )


def rows(count: int) -> tuple[Step, ...]:
    """One step of so many rows at positions of their own, from whatever sequences left."""
    return ((TOKENS[:count], POSITIONS[:count]),)


def begun(folder: str, count: int, steps: int) -> tuple[Step, ...]:
    """An oracle's first tokens; a second row, if there is one, starts a step later, and others are not live."""
    ids = [int(i) for i in answers(folder)["ids"].reshape(-1)]
    found = []
    for i in range(steps):
        live = (i, i - 1, *[-1] * count)[:count]
        found.append((tuple(ids[max(at, 0)] for at in live), live))
    return tuple(found)


def tiny(folder: str, mode: str = "on_wait", lines: str = ONE, count: int = 1, **more: Any) -> Case:
    """A case of one of the oracles' folders."""
    more = {"filled": True, "steps": rows(count)} | more
    return Case(FAMILIES[folder][0], lines=lines, folder=folder, mode=mode, **more)


def smollm2(layers: int, count: int, mode: str) -> Case:
    """The embedded weights, of so many layers."""
    lines = ONE + TILES.format("attention", "attention", 2)
    return Case("smollm2", rows(count), lines, "demo", (("layers", layers),), mode=mode, filled=True)


QUICK = {
    "qwen3, three rows": tiny("qwen3_tiny", "eager", ONE + TILES.format("attention", "attention", 2), 3),
    "qwen3 from the start": tiny("qwen3_tiny", filled=False, steps=begun("qwen3_tiny", 2, 2)),
    "qwen38, one core": tiny("qwen38_tiny", "on_wait", ONE + QWEN38, 2),
    "smollm2, one layer": smollm2(1, 3, "eager"),
    "qwen38, two cores": tiny("qwen38_tp8", "eager", qwen38(2, "scatter_gather"), 3),
    "kimi, two cores": tiny("kimi_k3_mxfp4_tp8", "on_wait", kimi(1, 2), 2),
    "kimi, two by two cores": tiny("kimi_k3_mxfp4_tp8", "eager", kimi(2, 2), 1),
    "kimi, columns by two by two cores": tiny("kimi_k3_mxfp4_tp8", "on_wait", kimi(2, 2, by="scatter_gather"), 2),
    "kimi in blocks, one core": tiny("kimi_k3_mxfp4_tiny", "eager", ONE + KIMI + BLOCKS, 2),
    "kimi expanded from the start": tiny(
        "kimi_k3_tiny", "eager", ONE + EXPANDED, filled=False, steps=begun("kimi_k3_tiny", 1, 3)
    ),
    "qwen38, eight cores": tiny("qwen38_tp8", "on_wait", qwen38(8, "two_level")),
}
# The others are thorough.
FIRST = ("qwen3, three rows",)
SLOW = {
    **{f"qwen3, {count} rows, {mode}": tiny("qwen3_tiny", mode, count=count) for count in (1, 2, 8) for mode in MODES},
    **{
        f"qwen38, {count} rows, {mode}": tiny("qwen38_tiny", mode, ONE + QWEN38, count)
        for count in (1, 3, 8)
        for mode in MODES
    },
    **{
        f"qwen38 from the start, {mode}": tiny("qwen38_tiny", mode, filled=False, steps=begun("qwen38_tiny", 3, 6))
        for mode in MODES
    },
    **{
        f"qwen38 on {cores}, {by}, {mode}": tiny("qwen38_tp8", mode, qwen38(cores, by), count)
        for cores, count in ((2, 1), (4, 8), (8, 2))
        for by in ("direct", "scatter_gather", "two_level")
        if (cores, by) != (2, "two_level")
        for mode in MODES
    },
    "qwen38 on eight, eight rows": tiny("qwen38_tp8", "eager", qwen38(8, "scatter_gather"), 8),
    "qwen38 on one": tiny("qwen38_tp8", "eager", ONE + QWEN38, 3),
    **{
        f"qwen38 on eight from the start, {mode}": tiny(
            "qwen38_tp8", mode, qwen38(8), filled=False, steps=begun("qwen38_tp8", 2, 4)
        )
        for mode in MODES
    },
    **{f"smollm2, {layers} layers, {mode}": smollm2(layers, 2, mode) for layers in (4, 30) for mode in MODES},
    **{
        f"{folder}, {count} rows, {mode}": tiny(folder, mode, ONE + KIMI, count)
        for folder in ("kimi_k3_tiny", "kimi_k3_mxfp4_tiny")
        for count in (1, 3, 8)
        for mode in MODES
    },
    **{
        f"{folder} from the start": tiny(folder, "eager", ONE, filled=False, steps=begun(folder, 2, 5))
        for folder in ("kimi_k3_tiny", "kimi_k3_mxfp4_tiny")
    },
    **{
        f"kimi in blocks, {count} rows, {mode}": tiny("kimi_k3_mxfp4_tiny", mode, ONE + KIMI + BLOCKS, count)
        for count in (1, 8)
        for mode in MODES
    },
    "kimi in blocks, gate alone": tiny("kimi_k3_mxfp4_tiny", lines=ONE + KIMI + "store moe.gate as fp8 block 64\n"),
    "kimi in blocks from the start": tiny(
        "kimi_k3_mxfp4_tiny", "eager", ONE + BLOCKS, filled=False, steps=begun("kimi_k3_mxfp4_tiny", 2, 5)
    ),
    **{
        f"kimi in blocks on {ep} x {tp}, {count} rows, {mode}": tiny(
            "kimi_k3_mxfp4_tp8", mode, kimi(ep, tp) + BLOCKS, count
        )
        for ep, tp in ((1, 8), (2, 4))
        for count, mode in ((1, "on_wait"), (8, "eager"))
    },
    "kimi in blocks on eight from the start": tiny(
        "kimi_k3_mxfp4_tp8", "on_wait", kimi(2, 4) + BLOCKS, filled=False, steps=begun("kimi_k3_mxfp4_tp8", 2, 3)
    ),
    **{
        f"kimi on {ep} x {tp}, {count} rows": tiny("kimi_k3_mxfp4_tp8", mode, kimi(ep, tp), count)
        for ep, tp, count, mode in (
            (1, 2, 3, "eager"),
            (2, 1, 3, "on_wait"),
            (2, 2, 3, "on_wait"),
            (1, 8, 1, "on_wait"),
            (2, 4, 3, "eager"),
            (4, 2, 8, "on_wait"),
            (8, 1, 3, "eager"),
        )
    },
    **{
        f"kimi's columns on {ep} x {tp}, {count} rows, {mode}": tiny(
            "kimi_k3_mxfp4_tp8", mode, kimi(ep, tp, by="scatter_gather"), count
        )
        for ep, tp, count in ((1, 2, 3), (2, 2, 8), (2, 4, 1), (4, 2, 3), (1, 8, 3), (8, 1, 1))
        for mode in MODES
    },
    **{
        f"kimi expanded, {count} rows, {mode}": tiny("kimi_k3_tiny", mode, ONE + KIMI + EXPANDED, count)
        for count in (1, 3, 8)
        for mode in MODES
    },
    **{
        f"kimi expanded on {ep} x {tp}, {count} rows": tiny("kimi_k3_mxfp4_tp8", mode, kimi(ep, tp) + EXPANDED, count)
        for ep, tp, count, mode in (
            (1, 2, 3, "on_wait"),
            (1, 8, 1, "on_wait"),
            (2, 4, 3, "eager"),
            (4, 2, 8, "on_wait"),
            (8, 1, 8, "eager"),
        )
    },
    "kimi expanded on 4 x 2 from the start": tiny(
        "kimi_k3_mxfp4_tp8", "eager", kimi(4, 2) + EXPANDED, filled=False, steps=begun("kimi_k3_mxfp4_tp8", 3, 4)
    ),
}
# On a narrower wire only the choice is the same.
ROUNDED = {
    **{
        f"qwen38 on {cores}, {by}, bf16": tiny("qwen38_tp8", "eager", qwen38(cores, by, "bf16"), 3)
        for cores, by in ((2, "direct"), (4, "scatter_gather"), (8, "two_level"))
    },
    "kimi on 2 x 2, bf16": tiny("kimi_k3_mxfp4_tp8", "eager", kimi(2, 2, "bf16"), 3),
    "kimi's columns on 2 x 2, bf16": tiny("kimi_k3_mxfp4_tp8", "on_wait", kimi(2, 2, "bf16", "scatter_gather"), 3),
}


def cores(case: Case) -> int:
    """How many cores a case has."""
    return next((count for count, topology in TOPOLOGIES.items() if f"target {topology}" in case.lines), 1)


def within(case: Case) -> float:
    """How far logits may be off."""
    return 5e-4 if case.model == "kimi_k3" else 1e-4


def check(case: Case, found: list[Found] | str, within: float) -> None:
    """The reference's logits and states from the same states, the oracle's if the case has its beginning."""
    assert not isinstance(found, str), found
    for (_, positions), step in zip(case.steps, found, strict=True):
        live = [row for row, position in enumerate(positions) if position >= 0]
        np.testing.assert_allclose(step.logits[live], step.wanted[live], rtol=0, atol=within)
        assert (step.ids[live] == step.wanted[live].argmax(-1)).all()
        for name, state in step.states.items():
            np.testing.assert_allclose(state, step.wanted_states[name], rtol=within, atol=within, err_msg=name)
        assert elsewhere(step, positions) == []
        if not case.filled:
            logits = answers(case.folder)["logits"].reshape(-1, step.logits.shape[-1])
            for row in live:
                wanted = logits[positions[row]]
                np.testing.assert_allclose(step.logits[row], wanted, rtol=0, atol=FAMILIES[case.folder][1])


@pytest.mark.parametrize("name", thorough_but(FIRST, QUICK))
def test_step(name: str) -> None:
    """Logits and states near the reference's, the same ids, and nothing else is touched."""
    case = QUICK[name]
    check(case, run([case], cores(case), 300)[0], within(case))


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_more_steps(name: str) -> None:
    """On more cores, with more rows and layers."""
    case = SLOW[name]
    check(case, run([case], cores(case), 900)[0], within(case))


@pytest.mark.slow
@pytest.mark.parametrize("name", ROUNDED)
def test_narrow_wire(name: str) -> None:
    """With bf16 on the wire the reference's ids, and logits that differ by some percent in all."""
    case = ROUNDED[name]
    (found,) = run([case], cores(case), 900)
    assert not isinstance(found, str), found
    (step,), ((_, positions),) = found, case.steps
    live = [row for row, position in enumerate(positions) if position >= 0]
    assert (step.ids[live] == step.wanted[live].argmax(-1)).all()
    off = np.linalg.norm(step.logits[live] - step.wanted[live], axis=-1) / np.linalg.norm(step.wanted[live], axis=-1)
    assert 0 < off.max() < 0.05
    assert elsewhere(step, positions) == []
