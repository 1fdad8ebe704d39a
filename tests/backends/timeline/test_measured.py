"""Predictions against what the authors of the public megakernels measured on TPU v7, within ten percent.

No figure stands in both lists: `CALIBRATED` ones are what constants were made of, `MEASURED` ones what is predicted.
"""

from collections.abc import Callable

import pytest
from helpers import megakernels as public

from mks.backends.timeline.actions import Collect, Post
from mks.backends.timeline.links import round_seconds
from mks.backends.timeline.simulate import simulate
from mks.backends.timeline.text import sources
from mks.dsl.collectives.collective import Round
from mks.dsl.targets.targets import targets

TPU = targets["tpu7x"]

CALIBRATED = {
    "HBM at 3.2 TB/s",
    "20 ns for 256 x 256 of bf16",
    "all-gather [8, 512] bf16",
    "all-reduce [64, 4096] bf16",
    "a link at 45 GB/s",
    "sibling 101 GB/s at 256 KiB",
    "sibling 610 GB/s at 16 MiB",
    # of a public kernel's own computing, in its list of actions
    "8 rounds of an argmax 2.7 us",
    "ranks 0.7 us",
    "attention of a row 1.5 us",
    "195 us fixed, 126 of them the logits",
    "expert phases 42, 57, 21.6, 28.9 us",
}


def ring(loads: int, bits: int, wide: int = 0) -> float:
    """Microseconds for so many loads of a ring that never stops."""
    times = 10
    return simulate(public.ring_only(TPU, loads * times, bits, wide * times), TPU).step * 1e6 / times


def reduced(rows: int, width: int, size: int, rounds: int = 2) -> float:
    """Scatter and gather over eight cores, microseconds; a gather alone is one round of it."""
    return rounds * round_seconds(Round(7, rows * width // 8 * size), (2, 2, 1), TPU) * 1e6


def by_levels() -> float:
    """[64, 4096] in bf16 over siblings, then chips, and back."""
    siblings = round_seconds(Round(1, 64 * 4096, True), (2, 2, 1), TPU)
    return 2 * (siblings + round_seconds(Round(3, 64 * 1024), (2, 2, 1), TPU)) * 1e6


def muse(codes: str, rows: int) -> float:
    """Milliseconds of a step of Muse Spark."""
    return simulate(public.muse(TPU, public.MUSE[codes], rows), TPU).step * 1e3


def kimi(rows: int) -> float:
    """Milliseconds of a step of Kimi K3."""
    return simulate(public.kimi(TPU, rows), TPU).step * 1e3


def layer() -> float:
    """Microseconds of a layer of Muse Spark, int4, one row."""
    return (muse("int4", 1) * 1e3 - 195) / 62


def collectives() -> float:
    """Microseconds that a layer of it would be shorter without messages."""
    bare = [x for x in public.muse(TPU, public.MUSE["int4"], 1) if not isinstance(x, Post | Collect)]
    return (muse("int4", 1) - simulate(bare, TPU).step * 1e3) * 1e3 / 62


MEASURED: dict[str, tuple[Callable[[], float], float]] = {
    "dense ring, 76 MiB of bf16": (lambda: ring(38, 16), 25.0),
    "logits, bf16": (lambda: ring(200, 16), 126.0),
    "logits, int8": (lambda: ring(100, 8), 68.0),
    "all-reduce [8, 8192] f32": (lambda: reduced(8, 8192, 4), 9.4),
    "all-reduce [8, 8192] bf16": (lambda: reduced(8, 8192, 2), 7.3),
    "all-reduce [64, 4096] f32": (lambda: reduced(64, 4096, 4), 25.4),
    "all-reduce [64, 4096] bf16 by levels": (by_levels, 13.5),
    "all-gather [8, 1024] bf16": (lambda: reduced(8, 8192, 2, 1), 3.87),
    "Muse Spark's layer": (layer, 55.0),
    "its collectives": (collectives, 14.0),
}
STEPS = {
    "int4": (3.592, 3.705, 3.912, 4.291),
    "nvfp4": (3.565, 4.070, 4.626, 4.861),
    "nvfp4 int8": (3.260, 3.657, 4.245, 4.462),
}
KIMI = {1: 4.016, 2: 5.10, 4: 7.77, 8: 9.25}
# Where the model falls short, and by how much at most. Without any product these loads were measured to take 16.1 us,
# at 2.7 TB/s, while the logits' loads of the same shape come at 3.1: what slows them down is not published, and nothing
# that is published explains it.
# * Bytes, such as scales: 4 to 7 MiB a layer would be missing. Held in HBM, int8 was measured to save 2.2 GiB (57.8 to
#   55.6) where 62 layers of 34 MiB and the logits' 200 are 2.25; with so many more bytes it would save 2.0 or less.
# * The rate, 3.0 TB/s in rings: these loads would take 14.7 us, and the bf16 logits 140, where 126 were measured.
# * The products: they are less than the loads, and not among the 16.1 us.
SHORT = {"dense ring, 42 MiB of int8": (lambda: ring(21, 8, 4), 17.4, 0.20)}


def test_no_figure_is_used_twice() -> None:
    """What constants are made of is not what they are tested on."""
    assert not CALIBRATED & set(MEASURED)
    named = " ".join(each.source for _, each in sources(TPU))
    for figure in ("all-gather [8, 512] bf16", "all-reduce [64, 4096] bf16", "101 GB/s at 256 KiB", "20 ns"):
        assert figure in named
    assert all(each.source for _, each in sources(TPU))


@pytest.mark.parametrize("name", MEASURED)
def test_parts_take_what_was_measured(name: str) -> None:
    """Rings, logits, collectives by size and wire, a layer and its share of messages."""
    predicted, measured = MEASURED[name]
    assert predicted() == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize(
    ("codes", "rows", "measured"),
    [(codes, rows, ms) for codes, steps in STEPS.items() for rows, ms in zip((1, 2, 4, 8), steps, strict=True)],
)
def test_steps_of_muse_spark(codes: str, rows: int, measured: float) -> None:
    """A ring, experts in waves, four collectives a layer."""
    assert muse(codes, rows) == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize("rows", KIMI)
def test_steps_of_kimi_k3(rows: int) -> None:
    """A pool that attention and experts share, seven or eight rounds a layer over 32 cores."""
    assert kimi(rows) == pytest.approx(KIMI[rows], rel=0.1)


@pytest.mark.parametrize("name", SHORT)
def test_where_the_model_falls_short(name: str) -> None:
    """A miss is known by its size: it is neither hidden nor left to grow."""
    predicted, measured, most = SHORT[name]
    assert 0.1 < 1 - predicted() / measured < most
