"""Where figures of the chips that ship come from."""

from __future__ import annotations

from .target import Figure, Links, Spills

TPU_INFO = "jax/_src/tpu_info.py"
CLOUD = "docs.cloud.google.com/tpu"
AOT = "measured by ahead-of-time compilation, jax 0.12.0.1, libtpu 0.0.52"
CORES = "measured on TPU7x cores by the authors of the public megakernels"
BUNDLES = "bundles of the final schedule, counted from ahead-of-time compilation with libtpu 0.0.52"
PEAK = "peak operations a second / those of a cycle of its matrix units"
GUESS = "assumed"
SPILLED = "above every kernel of random schedules compiled ahead of time by libtpu 0.0.52"

GIB = 1 << 30
SMEM = Figure(1 << 20, TPU_INFO)
HBM_LATENCY = Figure(0.7e-6, f"{GUESS}; nothing public says how long a first byte takes")
ATTEND = Figure(40.0, f"608 bundles for 1024 positions of 512, 369 for 256 of 1152: {BUNDLES}")


def tiles(f32: float, bf16: float, eight: float, four: float) -> dict[int, Figure]:
    """Bundles of a product with each `TILE` of weights, by the bits of an element."""
    return {32: Figure(f32, GUESS), 16: Figure(bf16, BUNDLES), 8: Figure(eight, BUNDLES), 4: Figure(four, BUNDLES)}


def expert(value: float) -> Figure:
    """Bundles of a row of four-bit codes, or of fp8 numbers with a scale for each block."""
    return Figure(value, f"an expert of Kimi K3, of one row and of eight: {BUNDLES}")


def links(scale: float = 1.0, note: str = "; taken over from tpu7x") -> Links:
    """As measured on TPU7x, with rates `scale` times as high."""
    return Links(
        chip_latency=Figure(3.67e-6, f"all-gather [8, 512] bf16 over 8 cores, {CORES}{note}"),
        chip_setup=Figure(
            1.43e-6, f"all-reduce [64, 4096] bf16, half of 14.5 us, less bytes over a link, {CORES}{note}"
        ),
        link_rate=Figure(45e9 * scale, f"{CORES}{note}"),
        sibling_latency=Figure(2.2e-6, f"101 GB/s at 256 KiB, 610 GB/s at 16 MiB, {CORES}{note}"),
        sibling_rate=Figure(662e9 * scale, f"the same two, {CORES}{note}"),
    )


def spills(*registers: float, kept: int) -> Spills:
    """In the order of the fields of `Spills`."""
    always, bf16, f32, tile, heads, state, route, value = registers
    return Spills(always, bf16, f32, tile, heads, state, route, value, kept, SPILLED)
