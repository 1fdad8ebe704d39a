"""TPU v5p."""

from __future__ import annotations

from .sources import AOT, ATTEND, CLOUD, GIB, HBM_LATENCY, PEAK, SMEM, expert, links, spills, tiles
from .target import Compute, Figure, Memory, Target

V5P = Target(
    name="v5p",
    topology_rank=3,
    chips=Figure(8960, CLOUD),
    cores=1,
    memory=Memory(
        hbm=Figure(95 * GIB, CLOUD),
        hbm_rate=Figure(2765e9, CLOUD),
        hbm_latency=HBM_LATENCY,
        vmem=Figure(67_043_328, AOT),
        smem=SMEM,
    ),
    compute=Compute(
        clock=Figure(1.75e9, PEAK),
        bf16_rate=Figure(459e12 / 2, CLOUD),
        tile=tiles(2700.0, 666.0, 1200.0, 1364.0),
        code_row=expert(504.0),
        block=expert(674.0),
        attend=ATTEND,
    ),
    links=links(100e9 / 45e9),
    spills=spills(65, 10, 45, 0.3, 1.5, 1.2, 3, 1.6, kept=40),
    note="a chip's two cores are one device; a kernel runs on one of them",
)
