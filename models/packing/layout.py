"""How a packed model lies on the disk: a file for each core, and which part of it each layer's weights fill.

A core's file is a safetensors file: its tapes, tables and vectors, one after the other. `manifest.json` says the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from math import prod
from typing import Any

from attrs import asdict, frozen

from ...dsl.program.analysis import traffic
from ...dsl.program.ir import ExpertPool, Product, Program, SmallWeightsRef, TableRef, TapeRef
from ...dsl.program.layout.tiling import WIDTH
from . import tapes
from .operands import bank_block, bank_layers
from .tapes import Array, Read

FORMAT = 2  # raise it when folders change in a way that older readers do not see
MANIFEST = "manifest.json"
JOURNAL = "journal"
KINDS = {"int32": "i32", "f32": "f32"}
_PAGE = 4096

type Blocks = Callable[[Read, int], Iterator[Array]]


@frozen
class Operand:
    """An array that each core reads; `dtype` is `int32` or `f32`."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of one core's."""
        return 4 * prod(self.shape)


@frozen
class Piece:
    """What one layer's `weights` (`None`: the model's own) fill of an array: `nbytes` from its byte `begin` on.

    Of experts a piece is one of each core's, because a layer of them may be larger than memory.
    `blocks(read, core)` makes it bit by bit; what it yields holds until the next is asked for.
    """

    array: str
    layer: int | None
    begin: int
    nbytes: int
    weights: tuple[str, ...]
    blocks: Blocks


def core_file(core: int) -> str:
    """The name of a core's file."""
    return f"core-{core:03d}.safetensors"


def operands(program: Program) -> tuple[Operand, ...]:
    """What a core reads, in the order of its file: tapes and experts, which are whole pages, come first."""
    order = ("tape", "bank", "table", "vectors")
    result = sorted(traffic.operands(program), key=lambda a: order.index(a.kind))
    return tuple(Operand(a.name.label, a.dtype, a.shape) for a in result)


def pieces(program: Program) -> list[Piece]:
    """All of them: layer by layer, then the model's own, and within an array in its order."""
    result: list[Piece] = []
    for ring in program.rings:
        at = 0
        for name, layer in program.transfers(ring):
            product = program.products[name]
            nbytes = product.tiling.rows * WIDTH * 4
            result.append(
                Piece(TapeRef(ring).label, layer, at, nbytes, product.weights, _rows(program, product, layer))
            )
            at += nbytes
    for bank in program.banks.values():
        weights, nbytes = tuple(name for names in bank.products for name in names), bank.layout.rows * WIDTH * 4
        experts = [(layer, number) for layer in bank_layers(program, bank) for number in range(bank.count)]
        result += [
            Piece(bank.array.label, layer, i * nbytes, nbytes, weights, _expert(program, bank, layer, number))
            for i, (layer, number) in enumerate(experts)
        ]
    for a in program.arrays.values():
        if isinstance(a.name, TableRef):
            result.append(Piece(a.name.label, None, 0, 4 * prod(a.shape), (a.name.weight,), _table(program, a.name)))
        elif isinstance(a.name, SmallWeightsRef):
            weights, nbytes = tapes.vector_weights(program, a.name), 4 * a.shape[-1]
            result += [
                Piece(a.name.label, layer, i * nbytes, nbytes, weights, _vectors(program, a.name, layer))
                for i, layer in enumerate(tapes.vector_layers(program, a.name))
            ]
    return sorted(result, key=lambda piece: (piece.layer is None, piece.layer or 0))


def _rows(program: Program, product: Product, layer: int | None) -> Blocks:
    return lambda read, core: tapes.product_blocks(program, product, layer, read, core)


def _expert(program: Program, bank: ExpertPool, layer: int, number: int) -> Blocks:
    return lambda read, core: iter([bank_block(program, bank, layer, number, read, core)])


def _table(program: Program, name: TableRef) -> Blocks:
    return lambda read, core: tapes.table_blocks(program, name, read, core)


def _vectors(program: Program, name: SmallWeightsRef, layer: int | None) -> Blocks:
    return lambda read, core: iter([tapes.vector_row(program, name, layer, read, core)])


def header(arrays: tuple[Operand, ...]) -> tuple[bytes, dict[str, int]]:
    """The first bytes of a core's file, whole pages of them, and where in the file each array begins."""
    entries: dict[str, Any] = {"__metadata__": {"format": f"mks {FORMAT}"}}
    starts, at = {}, 0
    for a in arrays:
        entries[a.name] = {"dtype": KINDS[a.dtype].upper(), "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        starts[a.name] = at
        at += a.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _PAGE)
    first = len(text).to_bytes(8, "little") + text
    return first, {name: len(first) + start for name, start in starts.items()}


def fingerprint(program: Program) -> str:
    """Of all that says where a number lies; folders and kernels with different ones do not understand each other."""
    products = {p.name.label: [p.weights, p.widths, p.dtype, asdict(p.tiling)] for p in program.products.values()}
    own = [a for a in traffic.operands(program) if not isinstance(a.name, TapeRef)]
    resident = {a.name.label: [a.shape, a.dtype] for a in own}
    described = {
        "tapes": {
            ring.label: [(name.label, layer) for name, layer in program.transfers(ring)] for ring in program.rings
        },
        "products": products,
        "experts": {b.array.label: [b.products, b.axes, asdict(b.layout)] for b in program.banks.values()},
        "arrays": resident,
        "views": {
            w.label: [v.buffer.label, v.start, v.shape, v.transposed]
            for w, v in program.views.items()
            if v.buffer in {a.name for a in own}
        },
    }
    return sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
