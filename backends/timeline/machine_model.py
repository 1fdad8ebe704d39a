"""The figures of a machine that a prediction rests on, each with its source. A new target is a new row."""

from __future__ import annotations

from attrs import frozen

from ...dsl.targets.targets import Figure, Target

_CORES = "measured on TPU7x cores by the authors of the public megakernels"
_BUNDLES = "bundles of the final schedule, counted from ahead-of-time compilation with libtpu 0.0.52"
_PEAK = "peak operations a second / those of a cycle of its matrix units"
_GUESS = "assumed"


@frozen
class Machine:
    """What a core and its links can do; seconds, bytes a second, cycles a second, bundles.

    A phase of messages between chips takes at least `chip_latency`; longer ones take `chip_setup` and their bytes over
    the busiest link, of which a core has `link_rate` each way. `sibling` is the other core of the chip.
    A product's bundles are counted for each `TILE` of weights, `tile` by the bits of an element; four-bit codes by
    rows, the first and each further one by `code_row`; fp8 numbers that have a scale for each block by `block`.
    Attention takes `attend` for 256 positions of 128 channels of keys or values.
    """

    target: str
    hbm_rate: Figure
    hbm_latency: Figure
    clock: Figure
    chip_latency: Figure
    chip_setup: Figure
    link_rate: Figure
    sibling_latency: Figure
    sibling_rate: Figure
    tile: dict[int, Figure]
    code_row: Figure
    block: Figure
    attend: Figure


# Of what `Machine.tile` counts, bytes.
TILE = 2560 * 1024

_HBM_LATENCY = Figure(0.7e-6, f"{_GUESS}; nothing public says how long a first byte takes")


def _links(scale: float, note: str) -> tuple[Figure, Figure, Figure, Figure, Figure]:
    """Latency and set-up between chips, a core's share of a link, latency and rate between siblings."""
    return (
        Figure(3.67e-6, f"all-gather [8, 512] bf16 over 8 cores, {_CORES}{note}"),
        Figure(1.43e-6, f"all-reduce [64, 4096] bf16, half of 14.5 us, less bytes over a link, {_CORES}{note}"),
        Figure(45e9 * scale, f"{_CORES}{note}"),
        Figure(2.2e-6, f"101 GB/s at 256 KiB, 610 GB/s at 16 MiB, {_CORES}{note}"),
        Figure(662e9 * scale, f"the same two, {_CORES}{note}"),
    )


_AS_7X = "; taken over from tpu7x"

_ROWS = (
    ("tpu7x", 1.7e9, "34 bundles push what 20 ns push, 256 x 256 in bf16: " + _CORES, 1.0, "",
     {32: 1500.0, 16: 377.0, 8: 1065.0, 4: 1224.0}, (84.0, 432.0)),
    ("v6e", 1.75e9, _PEAK, 100e9 / 45e9, _AS_7X, {32: 2200.0, 16: 550.0, 8: 1200.0, 4: 1328.0}, (115.0, 666.0)),
    ("v5p", 1.75e9, _PEAK, 100e9 / 45e9, _AS_7X, {32: 2700.0, 16: 666.0, 8: 1200.0, 4: 1364.0}, (504.0, 674.0)),
    ("v5e", 1.5e9, _PEAK, 50e9 / 45e9, _AS_7X, {32: 2700.0, 16: 666.0, 8: 1200.0, 4: 1309.0}, (505.0, 653.0)),
)  # fmt: skip


def machine(target: Target) -> Machine:
    """The row of a target."""
    for name, clock, source, links, note, tile, experts in _ROWS:
        if name == target.name:
            tiles = {bits: Figure(value, _BUNDLES if bits in (16, 8, 4) else _GUESS) for bits, value in tile.items()}
            code_row, block = (Figure(x, f"an expert of Kimi K3, of one row and of eight: {_BUNDLES}") for x in experts)
            attend = Figure(40.0, f"608 bundles for 1024 positions of 512, 369 for 256 of 1152: {_BUNDLES}")
            latency, setup, link, near, near_rate = _links(links, note)
            return Machine(name, target.hbm_rate, _HBM_LATENCY, Figure(clock, source), latency, setup, link, near,
                           near_rate, tiles, code_row, block, attend)  # fmt: skip
    raise KeyError(target.name)


def sources(model: Machine) -> list[tuple[str, float, str]]:
    """Every figure: its name, its value in SI units or bundles, and where it comes from."""
    lines = []
    for name in Machine.__annotations__:
        value = getattr(model, name)
        if isinstance(value, Figure):
            lines.append((name, value.value, value.source))
        elif isinstance(value, dict):
            lines += [(f"{name}, {bits} bits", figure.value, figure.source) for bits, figure in value.items()]
    return lines
