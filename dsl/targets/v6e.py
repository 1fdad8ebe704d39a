"""TPU v6e, Trillium."""

from __future__ import annotations

from .sources import AOT, ATTEND, CLOUD, GIB, HBM_LATENCY, PEAK, SMEM, expert, links, spills, tiles
from .target import Compute, Figure, Memory, Target

V6E = Target(
    name="v6e",
    topology_rank=2,
    chips=Figure(256, CLOUD),
    cores=1,
    memory=Memory(
        hbm=Figure(32 * GIB, CLOUD),
        hbm_rate=Figure(1638e9, CLOUD),
        hbm_latency=HBM_LATENCY,
        vmem=Figure(134_152_192, AOT),
        smem=SMEM,
    ),
    compute=Compute(
        clock=Figure(1.75e9, PEAK),
        bf16_rate=Figure(918e12, CLOUD),
        tile=tiles(2200.0, 550.0, 1200.0, 1328.0),
        code_row=expert(115.0),
        block=expert(666.0),
        attend=ATTEND,
    ),
    links=links(100e9 / 45e9),
    spills=spills(70, 50, 50, 0.3, 2.5, 1.2, 3, 1.9, kept=40),
)
