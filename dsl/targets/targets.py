"""The machines: one row of facts a chip, each figure with its source. A new target is a new row."""

from __future__ import annotations

from itertools import permutations, product
from math import isqrt, prod

from ..records import frozen

_TPU_INFO = "jax/_src/tpu_info.py"
_CLOUD = "docs.cloud.google.com/tpu"
_AOT = "measured by ahead-of-time compilation, jax 0.12.0.1, libtpu 0.0.52"
_CORE = "measured on TPU7x cores by the authors of the public megakernels"


@frozen
class Figure:
    """A number in bytes, bytes a second or operations a second, and where it comes from."""

    value: float
    source: str


@frozen
class Target:
    """What the checker must know of a chip; all figures are for one core, the device that a kernel runs on.

    `axes` is the rank of its topologies, `chips` how many its largest machine has; `cores` the devices of a chip.
    `vmem` is what one kernel can use.
    """

    name: str
    cores: int
    axes: int
    chips: Figure
    hbm: Figure
    hbm_rate: Figure
    vmem: Figure
    smem: Figure
    bf16_rate: Figure
    note: str = ""
    lanes: int = 128

    def devices(self, topology: tuple[int, ...]) -> int:
        """How many cores a topology has."""
        return prod(topology) * self.cores

    def exists(self, topology: tuple[int, ...]) -> bool:
        """Whether there are such machines.

        Hosts stand side by side along the first two axes, each with one chip of it or two: the compiler describes no
        other lengths. Flat machines are square at most.
        """
        longest = isqrt(int(self.chips.value)) if self.axes == 2 else int(self.chips.value)
        return (len(topology) == self.axes and prod(topology) <= self.chips.value
                and all(0 < length <= longest for length in topology)
                and all(length == 1 or length % 2 == 0 for length in topology[:2]))  # fmt: skip

    def near(self, topology: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Two machines that exist, with about as many chips in about that shape; `topology` has the right rank."""
        longest = isqrt(int(self.chips.value))
        lengths = [min(length, longest) for length in topology]
        around = [sorted({max(1, x + d) for d in (-1, 0, 1)} | {1, 2, longest}) for x in lengths]
        chips = min(prod(topology), int(self.chips.value))

        def far(other: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
            return abs(prod(other) - chips), sum(abs(a - b) for a, b in zip(other, lengths, strict=True)), other

        tried = {*product(*around), *permutations(topology)}
        return sorted((other for other in tried if self.exists(other)), key=far)[:2]


_GIB = 1 << 30
_SMEM = Figure(1 << 20, _TPU_INFO)

targets: dict[str, Target] = {
    row.name: row
    for row in (
        Target("v5e", 1, 2, Figure(256, _CLOUD), Figure(16 * _GIB, _CLOUD), Figure(819e9, _CLOUD),
               Figure(128 << 20, _AOT), _SMEM, Figure(197e12, _CLOUD)),
        Target("v5p", 1, 3, Figure(8960, _CLOUD), Figure(95 * _GIB, _CLOUD), Figure(2765e9, _CLOUD),
               Figure(67_043_328, _AOT), _SMEM, Figure(459e12 / 2, _CLOUD),
               "a chip's two cores are one device; a kernel runs on one of them"),
        Target("v6e", 1, 2, Figure(256, _CLOUD), Figure(32 * _GIB, _CLOUD), Figure(1638e9, _CLOUD),
               Figure(134_152_192, _AOT), _SMEM, Figure(918e12, _CLOUD)),
        Target("tpu7x", 2, 3, Figure(9216, _CLOUD), Figure(101_724_453_888, _CORE), Figure(3.2e12, _CORE),
               Figure(67_043_328, _AOT), _SMEM, Figure(2307e12 / 2, _CLOUD)),
    )
}  # fmt: skip

# Of a number as kernels compute with it and send it; and of one as VMEM may hold it.
BYTES = {"f32": 4, "int32": 4, "bf16": 2}
_HELD = BYTES | {"fp8": 1, "int8": 1}


def padded_bytes(shape: tuple[int, ...], dtype: str, lanes: int = 128) -> int:
    """What VMEM charges for a buffer.

    Lanes round up to 128; rows to a power of two below 8 and to a multiple of 8 from there, and to at least one
    32-bit row. Leading axes are not padded. Source: charged bytes measured on v5e and v7x by compilation.
    """
    size = _HELD[dtype]
    *leading, rows, columns = (1, 1, *shape)
    least = 4 // size
    rows = max(rows, least)
    rows = 1 << (rows - 1).bit_length() if rows < 8 else -(-rows // 8) * 8
    return prod(leading) * rows * (-(-columns // lanes) * lanes) * size
