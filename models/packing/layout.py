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

from ...dsl.program.ir import ExpertPool, Product, Program
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
    result = [Operand(f"tape {ring}", "int32", (tapes.tape_rows(program, ring), WIDTH)) for ring in program.rings]
    for kind in ("bank", "table", "vectors"):
        result += [Operand(a.name, a.dtype, a.shape) for a in program.arrays.values() if a.kind == kind]
    return tuple(result)


def pieces(program: Program) -> list[Piece]:
    """All of them: layer by layer, then the model's own, and within an array in its order."""
    result: list[Piece] = []
    for ring in program.rings:
        at = 0
        for name, layer in program.transfers(ring):
            product = program.products[name]
            nbytes = product.tiling.rows * WIDTH * 4
            result.append(Piece(f"tape {ring}", layer, at, nbytes, product.weights, _rows(program, product, layer)))
            at += nbytes
    for bank in program.banks.values():
        weights, nbytes = tuple(name for names in bank.products for name in names), bank.layout.rows * WIDTH * 4
        experts = [(layer, number) for layer in bank_layers(program, bank) for number in range(bank.count)]
        result += [Piece(bank.array, layer, i * nbytes, nbytes, weights, _expert(program, bank, layer, number))
                  for i, (layer, number) in enumerate(experts)]  # fmt: skip
    for a in program.arrays.values():
        if a.kind == "table":
            weight = a.name.removeprefix("table ")
            result.append(Piece(a.name, None, 0, 4 * prod(a.shape), (weight,), _table(program, a.name)))
        elif a.kind == "vectors":
            weights, nbytes = tapes.vector_weights(program, a.name), 4 * a.shape[-1]
            result += [Piece(a.name, layer, i * nbytes, nbytes, weights, _vectors(program, a.name, layer))
                      for i, layer in enumerate(tapes.vector_layers(program, a.name))]  # fmt: skip
    return sorted(result, key=lambda piece: (piece.layer is None, piece.layer or 0))


def _rows(program: Program, product: Product, layer: int | None) -> Blocks:
    return lambda read, core: tapes.product_blocks(program, product, layer, read, core)


def _expert(program: Program, bank: ExpertPool, layer: int, number: int) -> Blocks:
    return lambda read, core: iter([bank_block(program, bank, layer, number, read, core)])


def _table(program: Program, name: str) -> Blocks:
    return lambda read, core: tapes.table_blocks(program, name, read, core)


def _vectors(program: Program, name: str, layer: int | None) -> Blocks:
    return lambda read, core: iter([tapes.vector_row(program, name, layer, read, core)])


def header(arrays: tuple[Operand, ...]) -> tuple[bytes, dict[str, int]]:
    """The first bytes of a core's file, whole pages of them, and where in the file each array begins."""
    entries: dict[str, Any] = {"__metadata__": {"format": f"mks {FORMAT}"}}
    starts, at = {}, 0
    for a in arrays:
        entries[a.name] = {
            "dtype": KINDS[a.dtype].upper(), "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}  # fmt: skip
        starts[a.name] = at
        at += a.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _PAGE)
    first = len(text).to_bytes(8, "little") + text
    return first, {name: len(first) + start for name, start in starts.items()}


def fingerprint(program: Program) -> str:
    """Of all that says where a number lies; folders and kernels with different ones do not understand each other."""
    products = {p.name: [p.weights, p.widths, p.dtype, asdict(p.tiling)] for p in program.products.values()}
    resident = {a.name: [a.shape, a.dtype] for a in program.arrays.values() if a.kind in ("bank", "vectors", "table")}
    described = {
        "tapes": {ring: program.transfers(ring) for ring in program.rings},
        "products": products,
        "experts": {b.array: [b.products, b.axes, asdict(b.layout)] for b in program.banks.values()},
        "arrays": resident,
        "views": {w: [v.buffer, v.start, v.shape, v.transposed]
                  for w, v in program.views.items() if v.buffer in resident},
    }  # fmt: skip
    return sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
