"""Everything that one core's Program reads of a checkpoint, in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..dsl.program.ir import Bank, Program
from . import tapes
from .binding import Binding
from .expert_banks import expert_bank
from .read import read, read_expert
from .tapes import Array, Read


def stored(binding: Binding) -> Read:
    """A checkpoint's weights as packing takes them: of experts, one matrix each, as it is stored."""
    weights = binding.instance.model.weights
    experts = experts_of(binding)

    def one(name: str, layer: int | None) -> Any:
        if name not in experts:
            return read(binding, name, layer)
        count = binding.instance.length(weights[name].shape[0])
        return [read_expert(binding, name, layer, expert) for expert in range(count)]

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
    return frozenset(name for (name, _), source in binding.sources.items()
                     if weights[name].codec.group is not None or weights[name].codec.name in ("mxfp4", "nvfp4")
                     if not source.packed)  # fmt: skip


def bank_layers(program: Program, bank: Bank) -> list[int]:
    """The layers whose experts a bank holds, in order."""
    return [layer for layer, parts in program.layer_parts.items() if bank.part in parts]


def bank_blocks(program: Program, bank: Bank, layer: int, read: Read, core: int) -> Iterator[Array]:
    """One layer's experts of a core, int32 `[rows, 512]` each."""
    names = [name for names in bank.products for name in names]
    held: dict[str, Any] = {name: read(name, layer) for name in names}
    weights = [program.instance.model.weights[name] for name in names]
    return expert_bank(lambda name, expert: held[name][expert], weights, bank.layout, program.shares, core)


def packed(program: Program, read: Read, core: int) -> dict[str, Array]:
    """All operands of a core by the names that the Program gives them; `read` as `stored` makes it."""
    found = tapes.packed(program, read, core)
    for bank in program.banks.values():
        layers = [np.stack(list(bank_blocks(program, bank, layer, read, core))) for layer in bank_layers(program, bank)]
        found[bank.array] = np.stack(layers)
    return found
