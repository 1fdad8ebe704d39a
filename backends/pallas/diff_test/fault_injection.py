"""One tile of a product made wrong on purpose, to see that it is found."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....dsl.program import ir as p
from ..emit.shard_map import Operand
from ..layout.tape import first_rows

_SIGNS = {"mxfp4": 0x88888888, "fp8": 0x80808080, "bf16": 0x80008000, "f32": 0x80000000}


def names(program: p.Program) -> tuple[str, ...]:
    """What can be corrupted: parts and the step that multiply, and their weights."""
    result = [name for product in program.products.values() for name in (product.place, *product.weights)]
    return tuple(dict.fromkeys([*result, *(w for b in program.banks.values() for group in b.products for w in group)]))


def corrupted(program: p.Program, operand: Operand, name: str) -> Operand:
    """Operands with other signs in every second row of one tile, alike on all cores.

    It is the first tile of a part's first product, or of a weight's, in the first layer that runs it; of experts that
    of each one, as it is not known which will be chosen.
    """
    for bank in program.banks.values():
        for number, group in enumerate(bank.products):
            if name in group:
                product = bank.layout.products[number]
                rows = _rows(product.row, product.tiling.runs[0].rows[0])
                return _changed(operand, bank.array, (0, slice(None), rows), _SIGNS[product.codec.name])
    chosen = next(x for x in program.products.values() if name == x.place or name in x.weights)
    rows = _rows(first_rows(program)[chosen.name][0], chosen.tiling.runs[0].rows[0])
    return _changed(operand, p.TapeRef(chosen.ring), (rows,), _SIGNS[chosen.dtype])


def _rows(first: int, count: int) -> slice:
    return slice(first, first + count, 2)


def _changed(operand: Operand, array: p.ArrayRef, where: tuple[Any, ...], sign: int) -> Operand:
    def one(name: p.ArrayRef, core: int) -> np.ndarray[Any, Any]:
        found = operand(name, core)
        if name == array:
            found = np.array(found)
            found.view(np.uint32)[where] ^= np.uint32(sign)
        return found

    return one
