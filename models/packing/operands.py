"""Everything that one core's Program reads of a checkpoint, in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from attrs import field, frozen

from ...dsl.diagnostics import Diagnostic, Label, MksError
from ...dsl.program.analysis.traffic import operands
from ...dsl.program.ir import ArrayRef, ExpertPool, Program, SmallWeightsRef, TableRef, TapeRef
from ..checkpoint.binding import Binding
from ..checkpoint.read import read, read_expert, release_expert
from . import tapes
from .experts import Matrix, bank_expert
from .requantize import BlockError
from .tapes import Array, Read


@frozen
class Experts:
    """A weight's matrices in one layer, `experts[number]`; each is read, as it is stored, when it is asked for."""

    binding: Binding = field(repr=False)
    name: str
    layer: int | None
    taken: set[int] = field(factory=set, eq=False, repr=False)

    def __getitem__(self, expert: int) -> Matrix:
        self.taken.add(expert)
        return read_expert(self.binding, self.name, self.layer, expert)

    def scales(self, expert: int) -> str:
        """The tensor that holds an expert's scales."""
        source = self.binding.sources[self.binding.key(self.name, self.layer)]
        scales = source.pieces[expert if source.axes else 0].scales
        assert scales is not None
        return scales.tensor.name

    def release(self) -> None:
        """Let the system drop the pages of those that were read."""
        for expert in self.taken:
            release_expert(self.binding, self.name, self.layer, expert)
        self.taken.clear()


def stored(binding: Binding) -> Read:
    """A checkpoint's weights as packing takes them: arrays, and of experts `Experts`."""
    experts = experts_of(binding)

    def one(name: str, layer: int | None) -> Any:
        return Experts(binding, name, layer) if name in experts else read(binding, name, layer)

    return one


def experts_of(binding: Binding) -> frozenset[str]:
    """The weights that have a matrix for each expert, which routes choose."""
    model = binding.instance.model
    return frozenset(
        name for name, weight in model.weights.items() if len(weight.shape) == 3 and weight.part is not None
    )


def plain(binding: Binding) -> frozenset[str]:
    """Weights that the checkpoint holds as plain numbers, though the definition has a codec for them."""
    weights = binding.instance.model.weights
    return frozenset(
        name
        for (name, _), source in binding.sources.items()
        if weights[name].codec.group is not None or weights[name].codec.name in ("mxfp4", "nvfp4")
        if not source.packed
    )


def bank_layers(program: Program, bank: ExpertPool) -> list[int]:
    """The layers whose experts a bank holds, in order."""
    return list(program.layers_of(bank.part))


def bank_blocks(program: Program, bank: ExpertPool, layer: int, read: Read, core: int) -> Iterator[Array]:
    """One layer's experts of a core, int32 `[rows, 512]` each. Raises `MksError` (E427, E429)."""
    blocks = _held(bank, layer, read)
    return (_block(program, bank, blocks, number, core) for number in range(bank.count))


def bank_block(program: Program, bank: ExpertPool, layer: int, number: int, read: Read, core: int) -> Array:
    """One of them."""
    return _block(program, bank, _held(bank, layer, read), number, core)


def _held(bank: ExpertPool, layer: int, read: Read) -> dict[str, Any]:
    return {name: read(name, layer) for names in bank.products for name in names}


def _block(program: Program, bank: ExpertPool, blocks: dict[str, Any], number: int, core: int) -> Array:
    weights = [program.instance.model.weights[name] for name in blocks]
    try:
        return bank_expert(
            lambda name, expert: blocks[name][expert], weights, bank.layout, program.shares, core, number
        )
    except BlockError as e:
        raise MksError([_inexact(e, program, blocks[e.weight])]) from None


def _inexact(error: BlockError, program: Program, value: Any) -> Diagnostic:
    """A block that re-blocking would change."""
    store = next(store for store in program.schedule.stores if store.weight == error.weight)
    low, high = error.exponents
    where = f"`{value.scales(error.expert)}`: " if isinstance(value, Experts) else ""
    fits = (f"`store {error.weight} as fp8 block {error.fits}` would keep this matrix",) if error.fits else ()
    return Diagnostic(
        "E429",
        f"`{error.weight}` cannot be kept as {store.codec}: a block would lose bits",
        Label(store.span),
        (),
        (
            f"{where}expert {error.expert}, output {error.output}, inputs {error.inputs.start} .. {error.inputs.stop}: "
            f"scales from 2 ** {low} to 2 ** {high}",
            f"its largest number needs a scale of 2 ** {error.least} or more, its lowest bit one of 2 ** {error.most} "
            "or less: e4m3 has 448 and 2 ** -9",
        ),
        (*fits, f"without the line `{error.weight}` stays as it is stored"),
    )


def operand(program: Program, read: Read, name: ArrayRef, core: int) -> Array:
    """One of a core's operands; `read` as `stored` makes it."""
    match name:
        case TapeRef():
            return tapes.tape(program, name.ring, read, core)
        case TableRef():
            return tapes.lookup_table(program, name, read, core)
        case SmallWeightsRef():
            return tapes.vectors(program, name, read, core)
    (bank,) = (bank for bank in program.banks.values() if bank.array == name)
    result = np.empty(program.arrays[name].shape, np.int32)
    for i, layer in enumerate(bank_layers(program, bank)):
        for number, block in enumerate(bank_blocks(program, bank, layer, read, core)):
            result[i, number] = block
    return result


def packed(program: Program, read: Read, core: int) -> dict[str, Array]:
    """All of them, by their labels."""
    return {a.name.label: operand(program, read, a.name, core) for a in operands(program)}
