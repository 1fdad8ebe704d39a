"""What the tools know of a chip: one `Target`, made of its memory, units, links, spills and features.

Every figure is for one core, the device that a kernel runs on, and says where it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product
from math import isqrt, prod

from attrs import field, fields

from ..records import frozen

# What `Compute.tile` counts bundles for, bytes of weights.
TILE = 2560 * 1024


@frozen
class Figure:
    """A number in bytes, bytes a second, operations a second, seconds, cycles a second or bundles, and its source."""

    value: float
    source: str


@frozen
class Memory:
    """Bytes of HBM and of fast memory, and how fast HBM is read: bytes a second, seconds until the first comes.

    `vmem` is what one kernel can use.
    """

    hbm: Figure
    hbm_rate: Figure
    hbm_latency: Figure
    vmem: Figure
    smem: Figure


@frozen
class Compute:
    """How fast a core computes: cycles a second, bf16 operations a second, and bundles of what kernels do.

    A product's bundles are counted for each `TILE` of weights, `tile` by the bits of an element; four-bit codes by
    rows, the first and each further one by `code_row`; fp8 numbers that have a scale for each block by `block`.
    Attention takes `attend` for 256 positions of 128 channels of keys or values.
    """

    clock: Figure
    bf16_rate: Figure
    tile: dict[int, Figure]
    code_row: Figure
    block: Figure
    attend: Figure


@frozen
class Links:
    """Messages between cores, seconds and bytes a second.

    A round of messages between chips takes at least `chip_latency`; longer ones take `chip_setup` and their bytes over
    the busiest link, of which a core has `link_rate` each way. `sibling` is the other core of the chip.
    """

    chip_latency: Figure
    chip_setup: Figure
    link_rate: Figure
    sibling_latency: Figure
    sibling_rate: Figure


@frozen
class Spills:
    """Registers that the compiler spills for a target: in any kernel; in a region, of a product of bf16 and f32.

    `tile`, `heads` and `state` are for each register that a tile of the keys, what heads have seen of it, and the
    states of all heads of the delta rule fill; `route` for each row that chooses experts; `value` for each register of
    a statement's largest value above `kept`. `source` is where they all come from.
    """

    always: float
    bf16: float
    f32: float
    tile: float
    heads: float
    state: float
    route: float
    value: float
    kept: int
    source: str


@frozen
class Features:
    """What a chip has that others lack: `float4`, numbers of four bits that its matrix units take."""

    float4: bool = False


@frozen
class Target:
    """A kind of machine. `topology_rank` lengths say how many chips it has along each axis, `chips` how many at most.

    `cores` are the devices of a chip. `compiler_name` is what the compiler calls the chip, `name` if it is empty.
    """

    name: str
    topology_rank: int
    chips: Figure
    cores: int
    memory: Memory
    compute: Compute
    links: Links
    spills: Spills
    features: Features = field(factory=Features)
    note: str = ""
    compiler_name: str = ""

    @property
    def most(self) -> int:
        """Chips of the largest machine."""
        return int(self.chips.value)

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """Every figure and its name."""
        yield "chips", self.chips
        for group in (self.memory, self.compute, self.links):
            for each in fields(type(group)):
                value = getattr(group, each.name)
                if isinstance(value, Figure):
                    yield each.name, value
                else:
                    yield from ((f"{each.name}, {bits} bits", figure) for bits, figure in value.items())

    def devices(self, topology: tuple[int, ...]) -> int:
        """How many cores a topology has."""
        return prod(topology) * self.cores

    def exists(self, topology: tuple[int, ...]) -> bool:
        """Whether there are such machines.

        Hosts stand side by side along the first two axes, each with one chip of it or two: the compiler describes no
        other lengths. Flat machines are square at most.
        """
        longest = isqrt(self.most) if self.topology_rank == 2 else self.most
        return (
            len(topology) == self.topology_rank
            and prod(topology) <= self.most
            and all(0 < length <= longest for length in topology)
            and all(length == 1 or length % 2 == 0 for length in topology[:2])
        )

    def near(self, topology: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Two machines that exist, with about as many chips in about that shape; `topology` has the right rank."""
        longest = isqrt(self.most)
        lengths = [min(length, longest) for length in topology]
        around = [sorted({max(1, x + d) for d in (-1, 0, 1)} | {1, 2, longest}) for x in lengths]
        chips = min(prod(topology), self.most)

        def far(other: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
            return abs(prod(other) - chips), sum(abs(a - b) for a, b in zip(other, lengths, strict=True)), other

        tried = {*product(*around), *permutations(topology)}
        return sorted((other for other in tried if self.exists(other)), key=far)[:2]
