"""TPU v5e."""

from __future__ import annotations

from .sources import AOT, ATTEND, CLOUD, GIB, HBM_LATENCY, PEAK, SMEM, expert, links, spills, tiles
from .target import Compute, Figure, Memory, Target

V5E = Target(
    name="v5e",
    topology_rank=2,
    chips=Figure(256, CLOUD),
    cores=1,
    memory=Memory(
        hbm=Figure(16 * GIB, CLOUD),
        hbm_rate=Figure(819e9, CLOUD),
        hbm_latency=HBM_LATENCY,
        vmem=Figure(128 << 20, AOT),
        smem=SMEM,
    ),
    compute=Compute(
        clock=Figure(1.5e9, PEAK),
        bf16_rate=Figure(197e12, CLOUD),
        tile=tiles(2700.0, 666.0, 1200.0, 1309.0),
        code_row=expert(505.0),
        block=expert(653.0),
        attend=ATTEND,
    ),
    links=links(50e9 / 45e9),
    spills=spills(65, 10, 45, 0.3, 1.5, 1.2, 3, 1.6, kept=40),
)
