"""Collectives inside a kernel: interpreted on virtual cores against numpy, bit for bit; and compiled for TPUs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from helpers.children import call
from helpers.exchanging import Case, expected, parts

from mks.backends.pallas.collectives import collectives
from mks.backends.pallas.collectives.peers import Cores, collective_id, others
from mks.dsl.collectives.collective import Exchanged, Wire
from mks.dsl.collectives.gather import GATHER
from mks.dsl.collectives.kinds import sums
from mks.dsl.collectives.two_level import TWO_LEVEL

MODES = ("eager", "on_wait")


def answers(cases: list[dict], topology: str = "", seconds: float = 240) -> list:
    """What a child process says of each case."""
    return call("helpers.exchanging:answer", cases, topology, seconds=seconds, devices=8)


def check(cases: list[dict], wanted: set[str] | None = None, seconds: float = 240) -> None:
    """Each case is `ok`, or one of the faults that are wanted."""
    found = zip(cases, answers(cases, seconds=seconds), strict=True)
    assert [(case, said) for case, said in found if said not in (wanted or {"ok"})] == []


def reduces(mesh: tuple[int, ...], **more: object) -> list[dict]:
    """Every way of reducing with every wire, in one of the two modes each."""
    ways = itertools.product([kind.name for kind in sums()], ("f32", "bf16"))
    return [
        {"kind": "sum", "mesh": mesh, "by": by, "wire": wire, "mode": mode, **more}
        for (by, wire), mode in zip(ways, itertools.cycle(MODES), strict=False)
    ]


def test_sums_are_numpys() -> None:
    """Three collectives in a row give the bits of a sum in the order of ranks, on all cores, in every way."""
    check(reduces((4,), rows=3, width=300) + reduces((2,), rows=1, width=64, static=True)[::-1])


@pytest.mark.thorough
def test_sums_on_eight_cores() -> None:
    """As on fewer, where cores are further apart."""
    check(reduces((8,), rows=2)[1::2])


def test_gathers_and_greatest() -> None:
    """Shares lie in the order of ranks; of equal values the lowest id is chosen, ids beyond 24 bits included."""
    check(
        [
            {"kind": kind, "mesh": mesh, "mode": mode, "rows": rows, "width": width, "wire": wire}
            for kind, (mesh, mode, rows, width, wire) in itertools.product(
                ("gather", "argmax"),
                (((4,), "eager", 3, 256, "bf16"), ((2,), "on_wait", 1, 64, "f32")),
            )
        ]
    )


def test_scattered_sums() -> None:
    """Each core has its columns of the sum, the last cores none, and all have the columns that come to every core."""
    check(
        [
            {
                "kind": "reduce_scatter",
                "mesh": mesh,
                "mode": mode,
                "rows": rows,
                "width": width,
                "wire": wire,
                "beside": beside,
            }
            for mesh, mode, rows, width, wire, beside in (
                ((4,), "on_wait", 2, 300, "f32", 0),
                ((4,), "eager", 3, 300 + 128, "bf16", 128),
                ((2,), "on_wait", 1, 256 + 128, "f32", 128),
            )
        ]
    )


def test_merged_softmaxes() -> None:
    """Each core has its own heads over all positions, those of one that has seen none included."""
    check(
        [
            {"kind": "softmax_merge", "mesh": mesh, "over": over, "mode": mode, "rows": rows, "width": width}
            for mesh, over, mode, rows, width in (
                ((4,), "", "eager", 3, 256),
                ((2,), "", "on_wait", 1, 128),
                ((2, 2), "b", "on_wait", 8, 128),
                ((3,), "", "eager", 1, 128),
            )
        ]
    )


@pytest.mark.thorough
def test_one_axis_of_two() -> None:
    """A collective over one axis stays between its cores; over both, ranks run with the last axis fastest."""
    check(
        [
            {"kind": "sum", "mesh": (2, 4), "over": "b", "by": "two_level", "wire": "bf16"},
            {"kind": "sum", "mesh": (2, 2), "over": "a", "by": "scatter_gather", "mode": "on_wait"},
            {"kind": "gather", "mesh": (2, 2), "mode": "on_wait"},
            {"kind": "argmax", "mesh": (2, 2), "over": "b"},
        ]
    )


def test_odd_numbers_of_cores() -> None:
    """Ranks wrap round where their number is no power of two."""
    check([{"kind": "sum", "mesh": (3,)}])


def test_one_parity_is_a_race() -> None:
    """Receive slots that do not alternate are written while a slow core reads them, and the interpreter says so."""
    cases = [{"kind": "sum", "mesh": (2,), "mode": mode} for mode in MODES]
    cases += [{"kind": kind, "mesh": (2,)} for kind in ("gather", "argmax")]
    cases += [{"kind": "softmax_merge", "mesh": (2,), "width": 128}]
    cases += [{"kind": "sum", "by": "two_level", "mesh": (4,)}]
    check([{**case, "steps": 4, "fault": "parity"} for case in cases], {"race"})


def test_missing_waits_are_seen() -> None:
    """Neither reading before the messages are there nor leaving sends unawaited passes."""
    receipts = [{"kind": "sum", "mesh": (2,), "mode": mode, "fault": "receipts"} for mode in MODES]
    sends = [{"kind": "sum", "mesh": (4,), "by": by, "fault": "sends"} for by in [kind.name for kind in sums()]]
    merges = [{"kind": "softmax_merge", "mesh": (2,), "width": 128, "fault": fault} for fault in ("sends", "receipts")]
    check(receipts + sends + merges, {"race", "semaphores"})


def test_the_inputs_tell_orders_apart() -> None:
    """Another order of ranks, or one part that skips the wire's rounding, gives other bits."""
    case = Case("sum", (4,), wire="bf16")
    values, ids = parts(case)
    wanted, _ = expected(case, values, ids)

    backwards, _ = expected(case, values[::-1], ids)
    rounded = expected(case, values[1:], ids)[0]
    assert (backwards != wanted).any()
    assert (values[0] + rounded != wanted).any()


@pytest.mark.parametrize(("topology", "mesh"), [("tpu7x:2x2x1", (8,)), ("v5e:2x2", (2, 2))])
def test_compiled(topology: str, mesh: tuple[int, ...]) -> None:
    """Kernels at a model's sizes compile; VMEM is what the buffers should take and little more."""
    cases = reduces(mesh, width=5120) + reduces(mesh, rows=8, width=5120)[:3] + reduces(mesh, rows=3, width=2048)[3:]
    cases += [
        {"kind": "gather", "mesh": mesh, "rows": 8, "width": 640, "wire": "bf16"},
        {"kind": "argmax", "mesh": mesh},
    ]
    for case, (used, buffers) in zip(cases, answers(cases, topology), strict=True):
        rows, width = -(-case.get("rows", 1) // 4) * 4, case.get("width", 64)
        arguments = 2 * 3 * rows * max(width, 128) * 4 * (8 if case["kind"] == "gather" else 1) + 3 * 8 * 128 * 4 * 2
        assert buffers <= used <= buffers * 1.1 + arguments, case


def test_two_meshes_compile() -> None:
    """Collectives over one axis of two compile too."""
    ways = (("b", "two_level"), ("a", "direct"), ("a", "scatter_gather"))
    assert answers(
        [{"kind": "sum", "mesh": (2, 4), "over": over, "by": by, "width": 7168} for over, by in ways], "tpu7x:2x2x1"
    )


def test_refusals() -> None:
    """Exchanges that do not fit the cores or the value say so before anything is sent."""
    mesh = (("a", 4), ("b", 3))
    value = np.zeros((1, 64), np.float32)
    with pytest.raises(ValueError, match="between 4 cores, used by 12"):
        collectives.start(GATHER.plan(Exchanged(4, 1, 64, Wire.F32)), Cores(mesh, ("a", "b")), (), 0, value)
    with pytest.raises(ValueError, match=r"of \[1, 32\], given \[1, 64\]"):
        collectives.start(GATHER.plan(Exchanged(4, 1, 32, Wire.F32)), Cores(mesh, ("a",)), (), 0, value)
    with pytest.raises(ValueError, match="pairs along the mesh's last axis"):
        collectives.start(TWO_LEVEL.plan(Exchanged(4, 1, 64, Wire.F32)), Cores(mesh, ("a",)), (), 0, value)
    with pytest.raises(ValueError, match="no axes of the mesh"):
        Cores(mesh, ("b", "a"))


def test_pairs() -> None:
    """They are along the last axis that tells cores apart."""
    assert Cores((("a", 2), ("b", 1)), ("a",)).paired
    assert Cores((("a", 1), ("b", 4)), ("b",)).paired
    assert not Cores((("a", 2), ("b", 4)), ("a",)).paired
    assert not Cores((("a", 1), ("b", 3)), ("b",)).paired


def test_cores() -> None:
    """Peers are all others, the neighbour last; a kernel on one core has no barrier and no id for one."""
    for count, rank in itertools.product((2, 3, 4, 8), (0, 1)):
        found = [int(peer) for peer in others(np.int32(rank), count)]
        assert sorted([*found, rank]) == list(range(count))
        if count != 3:
            assert found[-1] == rank ^ 1
    assert collective_id(Cores((("a", 1),), ("a",)), 5) is None
    assert collective_id(Cores((("a", 2),), ("a",)), 5) == 5


@pytest.mark.slow
@pytest.mark.parametrize("mesh", [(2,), (4,), (6,), (8,), (2, 4)])
@pytest.mark.parametrize("rows", [1, 2, 8])
def test_every_way(mesh: tuple[int, ...], rows: int) -> None:
    """All kinds, ways and wires at several widths, five in a row."""
    for mode, width in (("eager", 64), ("on_wait", 640), ("on_wait", 5120)):
        cases = [{**case, "mode": mode} for case in reduces(mesh, rows=rows, width=width, steps=5)]
        cases += [
            {"kind": kind, "mesh": mesh, "rows": rows, "width": width, "mode": mode} for kind in ("gather", "argmax")
        ]
        check(cases, seconds=300)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topology", "mesh"), [("tpu7x:2x2x1", (8,)), ("tpu7x:2x2x1", (2, 4)), ("v5e:2x2", (4,)), ("v6e:2x2", (4,))]
)
def test_every_size_compiles(topology: str, mesh: tuple[int, ...]) -> None:
    """Rows 1 to 8 and the widths of models, and of tests."""
    cases = [
        case
        for rows, width in itertools.product((1, 2, 3, 5, 8), (64, 300, 2048, 5120, 7168))
        for case in reduces(mesh, rows=rows, width=width)
    ]
    cases += [
        {"kind": "gather", "mesh": mesh, "rows": rows, "width": width, "wire": wire}
        for rows, width, wire in itertools.product((1, 3, 8), (64, 300, 640), ("f32", "bf16"))
    ]
    cases += [{"kind": "argmax", "mesh": mesh, "rows": rows} for rows in range(1, 9)]
    assert len(answers(cases, topology, seconds=600)) == len(cases)
