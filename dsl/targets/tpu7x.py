"""TPU v7x, Ironwood."""

from __future__ import annotations

from .sources import AOT, ATTEND, CLOUD, CORES, HBM_LATENCY, SMEM, expert, links, spills, tiles
from .target import Compute, Features, Figure, Memory, Target

TPU7X = Target(
    name="tpu7x",
    topology_rank=3,
    chips=Figure(9216, CLOUD),
    cores=2,
    memory=Memory(
        hbm=Figure(101_724_453_888, CORES),
        hbm_rate=Figure(3.2e12, CORES),
        hbm_latency=HBM_LATENCY,
        vmem=Figure(67_043_328, AOT),
        smem=SMEM,
    ),
    compute=Compute(
        clock=Figure(1.7e9, "34 bundles push what 20 ns push, 256 x 256 in bf16: " + CORES),
        bf16_rate=Figure(2307e12 / 2, CLOUD),
        tile=tiles(1500.0, 377.0, 1065.0, 1224.0),
        code_row=expert(84.0),
        block=expert(432.0),
        attend=ATTEND,
    ),
    links=links(note=""),
    # f32: 19 kernels spilled at most 56 registers for a product in a region. It counts as two fifths more, as one of
    # 35 others was below with a quarter more.
    spills=spills(55, 55, 80, 0.2, 3.5, 1.4, 4, 1.6, kept=44),
    features=Features(float4=True),
)
