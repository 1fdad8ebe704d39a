"""Whole steps of kernels whose caches are shared out by positions, against the reference, with races detected.

`pytest -m slow tests/backends/pallas/emit/test_kernel_positions.py` runs more cores, rows and tiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.cases import Case
from helpers.kernels import MODES, Found, Outcome, elsewhere, run, same
from helpers.oracles import FAMILIES, answers
from helpers.schedules import kimi

pytestmark = pytest.mark.timeout(3000)

FOLDER, WITHIN = "kimi_k3_mxfp4_tp8", 5e-4
TOKENS = (11, 3, 200, 57, 91, 33, 140, 5)
# The first and the last of a block, of one core and of another, in the first turn and in the second; one is not live.
ON_TWO = (256, -1, 767, 0, 255, 511, 512, 1023)
ON_EIGHT = (1791, 2048, 2303, 300, 2304, -1, 2047, 256)


def case(ep: int, tp: int, over: str, positions: tuple[int, ...], mode: str, **more: Any) -> Case:
    """A step of the small Kimi at these positions, on `ep * tp` cores with positions shared out over some axes."""
    lines = kimi(ep, tp, positions=over, context=1024 if ep * tp == 2 else 2560)
    tile = more.pop("tile", 128)
    lines = lines.replace("tile = 128", f"tile = {tile}")
    return Case(
        "kimi_k3",
        ((TOKENS[: len(positions)], positions),),
        lines,
        more.pop("folder", FOLDER),
        mode=mode,
        filled=True,
        **more,
    )


def check(case: Case, found: Outcome, ways: int) -> None:
    """The reference's logits, ids and states from the same states; and nothing else is touched."""
    assert not isinstance(found, str), found
    ((_, positions),), (step,) = case.steps, found
    live = [row for row, position in enumerate(positions) if position >= 0]
    np.testing.assert_allclose(step.logits[live], step.wanted[live], rtol=0, atol=WITHIN)
    assert (step.ids[live] == step.wanted[live].argmax(-1)).all()
    for name, state in step.states.items():
        np.testing.assert_allclose(state, step.wanted_states[name], rtol=WITHIN, atol=WITHIN, err_msg=name)
    if not case.consecutive:
        assert elsewhere(step, positions, ways) == []


@pytest.mark.thorough
def test_two_cores() -> None:
    """Rows whose newest block is on either core; and tokens of one sequence that pass from one core to the other."""
    rows = case(1, 2, "tp", ON_TWO[:3], "on_wait")
    tokens = case(1, 2, "tp", (510, 511, 512), "eager", consecutive=True)
    for each, found in zip((rows, tokens), run([rows, tokens], 2, 400), strict=True):
        check(each, found, 2)


@pytest.mark.thorough
def test_eight_cores() -> None:
    """Positions over one axis of the mesh of two; experts over the other."""
    each = case(2, 4, "tp", ON_EIGHT[:2], "eager")
    check(each, run([each], 8, 600)[0], 4)


SLOW = {
    **{
        f"two cores, {count} rows, {mode}": (case(1, 2, "tp", ON_TWO[:count], mode), 2)
        for count in (1, 3, 8)
        for mode in MODES
    },
    **{
        f"two cores, plain experts, {mode}": (case(1, 2, "tp", ON_TWO[2:5], mode, folder="kimi_k3_tiny"), 2)
        for mode in MODES
    },
    **{
        f"eight cores, {count} rows, {mode}": (case(2, 4, "ep, tp", ON_EIGHT[:count], mode), 8)
        for count, mode in ((1, "on_wait"), (3, "eager"), (8, "on_wait"))
    },
    "positions over the slow axis": (case(4, 2, "ep", ON_EIGHT[:3], "on_wait"), 4),
    **{
        f"{count} tokens of one sequence, {mode}": (
            case(2, 4, "ep, tp", tuple(range(at, at + count)), mode, consecutive=True),
            8,
        )
        for count, at, mode in ((8, 2044, "on_wait"), (8, 252, "eager"), (3, 0, "on_wait"), (1, 2303, "eager"))
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_more(name: str) -> None:
    """More cores, rows and tokens of one sequence."""
    each, ways = SLOW[name]
    found = run([each], 2 if "two cores" in name else 8, 900)[0]
    if name == "positions over the slow axis":
        assert not isinstance(found, str), found
        np.testing.assert_allclose(found[0].logits, found[0].wanted, rtol=0, atol=WITHIN)
        return
    check(each, found, ways)


@pytest.mark.slow
def test_from_the_start() -> None:
    """The oracle's logits from its first token on, while most cores have no position yet."""
    ids = [int(i) for i in answers(FOLDER)["ids"].reshape(-1)]
    steps = tuple(((ids[i], ids[max(i - 1, 0)]), (i, i - 1)) for i in range(3))
    begun = Case("kimi_k3", steps, kimi(1, 2, positions="tp", context=1024), FOLDER, mode="eager")
    (found,) = run([begun], 2, 900)
    assert not isinstance(found, str), found
    logits = answers(FOLDER)["logits"].reshape(-1, found[0].logits.shape[-1])
    for (_, positions), step in zip(steps, found, strict=True):
        for row, position in enumerate(positions):
            if position >= 0:
                np.testing.assert_allclose(step.logits[row], logits[position], rtol=0, atol=FAMILIES[FOLDER][1])


@pytest.mark.slow
def test_tiles_change_no_bit() -> None:
    """Which core has a position does not depend on what is moved together."""
    found = run([case(1, 2, "tp", ON_TWO[2:5], "eager", tile=tile) for tile in (256, 512)], 2, 900)
    steps: list[list[Found]] = [each for each in found if not isinstance(each, str)]
    assert len(steps) == 2, found
    assert same(*steps) == []
