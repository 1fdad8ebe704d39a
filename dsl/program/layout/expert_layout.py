"""How the matrices of one routed expert lie in one array of 512-word rows, which a single transfer fetches.

The products lie one after the other in the order of use, each cut into blocks as a tape's are. What `mxfp4` stores
keeps its bits: eight codes to a word, and after a product's codes its scales. What is kept as `fp8` has four e4m3
numbers to a word, and scales of the same kind: a byte that is the exponent of one. Eight consecutive groups of a
block's columns are an octet, `[8, 512]` bytes; four octets share eight rows of words, the first in the lowest bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from ...model.ir import Codec
from ...records import frozen
from .tiling import WIDTH, Tiling, tiling

BITS = {"mxfp4": 4, "fp8": 8, "bf16": 16, "f32": 32}
GROUP = 32  # inputs that share a scale of `mxfp4`
OCTET = 8  # groups
_PER_WORD = 4  # octets


@frozen
class Block:
    """`columns` outputs from `first` on: `rows` rows from `row` on, with `fold` pieces of the inputs side by side.

    `octet` counts the product's octets of scales from its first one.
    """

    first: int
    columns: int
    fold: int
    row: int
    rows: int
    octet: int


@frozen
class ExpertProduct:
    """One product of an expert: outputs of `widths` one after the other, of `inputs` inputs, as one core holds them.

    `codec` is `mxfp4`, `fp8` in blocks, or `bf16` or `f32` for plain numbers. `group` inputs share a scale, the last
    ones fewer; 0 where there are none. Codes, or numbers, begin at `row`, scales at `scale_row`.
    """

    name: str
    codec: Codec
    widths: tuple[int, ...]
    inputs: int
    tiling: Tiling
    group: int
    row: int
    scale_row: int

    @property
    def outputs(self) -> int:
        """Outputs, not padded."""
        return sum(self.widths)

    @property
    def groups(self) -> int:
        """Scales of an output."""
        return -(-self.inputs // self.group) if self.group else 0

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The column blocks in order."""
        found, row, octet = [], self.row, 0
        for run in self.tiling.runs:
            rows = self.tiling.inputs // self.tiling.per_word // run.fold
            for block in range(run.count * run.blocks):
                found.append(Block(run.first + block * run.columns, run.columns, run.fold, row, rows, octet))
                row += rows
                octet += self.octets(run.fold)
        return tuple(found)

    def octets(self, fold: int) -> int:
        """Octets of a block's scales; the last one's groups may be fewer than eight."""
        return -(-(self.tiling.inputs // fold) // (OCTET * self.group)) if self.group else 0

    @property
    def end(self) -> int:
        """The row after its last one."""
        octets = sum(self.octets(block.fold) for block in self.blocks)
        return self.scale_row + OCTET * -(-octets // _PER_WORD)

    def place(self, octet: int) -> tuple[int, int]:
        """Where an octet lies: the first of its eight rows, and its byte in their words, 0 being the lowest."""
        return self.scale_row + OCTET * (octet // _PER_WORD), octet % _PER_WORD


@frozen
class ExpertLayout:
    """An expert's array, int32 `[rows, 512]`."""

    products: tuple[ExpertProduct, ...]

    def __getitem__(self, name: str) -> ExpertProduct:
        return next(product for product in self.products if product.name == name)

    @property
    def rows(self) -> int:
        """Rows in all, a multiple of 8."""
        return self.products[-1].end

    @property
    def nbytes(self) -> int:
        """Bytes of one transfer."""
        return self.rows * WIDTH * 4

    @property
    def padding(self) -> int:
        """How many of the bytes are neither a weight's nor a scale's."""
        used = 0
        for product in self.products:
            used += -(-product.outputs * product.inputs * BITS[product.codec.name] // 8)
            used += product.outputs * product.groups
        return self.nbytes - used


def expert_layout(products: Iterable[tuple[str, tuple[int, ...], int, Codec]]) -> ExpertLayout:
    """Lay out products, each its name, the widths of its matrices' outputs, its inputs and its codec, on one core."""
    found: list[ExpertProduct] = []
    at = 0
    for name, widths, inputs, codec in products:
        tiles = tiling(sum(widths), inputs, BITS[codec.name])
        made = ExpertProduct(name, codec, widths, inputs, tiles, _group(codec, inputs, tiles), at, at + tiles.rows)
        found.append(made)
        at = made.end
    return ExpertLayout(tuple(found))


def _group(codec: Codec, inputs: int, tiles: Tiling) -> int:
    """How many inputs share a scale.

    Where a share of the inputs cuts groups of `mxfp4`, the pieces of each keep its scale, so that all groups are
    equally long. A block of `fp8` ends where the share does, and none goes on from a piece of the inputs to the next.
    """
    if codec.name == "mxfp4":
        return gcd(GROUP, inputs)
    if codec.name != "fp8":
        return 0
    fold = max(run.fold for run in tiles.runs)
    return codec.group or 0 if fold == 1 else gcd(codec.group or 0, tiles.inputs // fold)
