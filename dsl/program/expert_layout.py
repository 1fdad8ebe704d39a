"""How the matrices of one routed expert lie in one array of 512-word rows, which a single transfer fetches.

The products lie one after the other in the order of use, each cut into blocks as a tape's are. What `mxfp4` stores
keeps its bits: eight codes to a word, and after a product's codes its scales. Eight consecutive groups of a block's
columns are an octet, `[8, 512]` bytes, which is what one dot of a kernel needs; four octets share eight rows of words,
the first in the lowest bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from attrs import frozen

from .tiles import WIDTH, Tiling, tiling

BITS = {"mxfp4": 4, "bf16": 16, "f32": 32}
GROUP = 32  # inputs that share a scale
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

    `group` inputs share a scale; 0 where there are none. Codes, or numbers, begin at `row`, scales at `scale_row`.
    """

    name: str
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
    """An expert's array, int32 `[rows, 512]`. `codec` is `mxfp4`, or `bf16` or `f32` for matrices of plain numbers."""

    codec: str
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
            used += -(-product.outputs * product.inputs * BITS[self.codec] // 8)
            used += product.outputs * -(-product.inputs // product.group) if product.group else 0
        return self.nbytes - used


def expert_layout(products: Iterable[tuple[str, tuple[int, ...], int]], codec: str) -> ExpertLayout:
    """Lay out products, each its name, the widths of its matrices' outputs and its inputs, as one core holds them.

    Where a share of the inputs cuts groups, the pieces of each keep its scale, so that all groups are equally long.
    """
    found: list[ExpertProduct] = []
    at = 0
    for name, widths, inputs in products:
        tiles = tiling(sum(widths), inputs, BITS[codec])
        group = gcd(GROUP, inputs) if codec == "mxfp4" else 0
        found.append(ExpertProduct(name, widths, inputs, tiles, group, at, at + tiles.rows))
        at = found[-1].end
    return ExpertLayout(codec, tuple(found))
