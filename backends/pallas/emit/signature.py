"""What a kernel takes and gives: its inputs, outputs and scratch, each by a reference of its own.

A definition's values lie in buffers, whose references are others: none can be taken for an input.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from attrs import frozen
from jax.experimental.pallas import tpu as pltpu

from ....dsl.model.ir import Ref
from ....dsl.program import ir as p
from ....dsl.program.analysis import traffic
from ....dsl.program.ir.scratch import collective, exchange_set
from ....dsl.records import frozen as ref
from ...reference.rounding import DTYPES
from ..collectives import collectives

type Shape = jax.ShapeDtypeStruct


class StepInput(Enum):
    """What a step is given beside arrays: scalars and tables, and the rows' tokens and positions as columns."""

    IDS = "ids"
    AT = "at"
    LAYERS = "layers"
    KEPT = "kept"
    WHOLE = "whole numbers by layer"
    REAL = "numbers by layer"
    TOKENS = "tokens"
    POSITIONS = "positions"


@ref(cache_hash=True)
class TapeTableRef(Ref):
    """Where a ring's transfers begin."""

    LABEL: ClassVar[str] = "table of {0.ring}"
    ring: p.RingRef


@ref(cache_hash=True)
class TileListRef(Ref):
    """The tiles, of so many positions, of all rows."""

    LABEL: ClassVar[str] = "tiles of {0.tile}"
    tile: int


type GivenRef = StepInput | TapeTableRef | TileListRef


@ref(cache_hash=True)
class InputRef(Ref):
    """An array in HBM that is read."""

    LABEL: ClassVar[str] = "array {0.array}"
    array: p.ArrayRef


@ref(cache_hash=True)
class OutputRef(Ref):
    """One that is written."""

    LABEL: ClassVar[str] = "output {0.array}"
    array: p.ArrayRef


@ref(cache_hash=True)
class ChosenRef(Ref):
    """The ids that were chosen."""

    LABEL: ClassVar[str] = "chosen ids"


class Way(Enum):
    """What semaphores count."""

    SLOTS = "slots of {}"
    LOADS = "loads of {}"
    SAVES = "saves of {}"


@ref(cache_hash=True)
class SemaphoresRef(Ref):
    """The semaphores of a ring, a copy or an expert pool."""

    way: Way
    of: Ref

    @property
    def label(self) -> str:
        """For people."""
        return self.way.value.format(self.of)


@ref(cache_hash=True)
class LookupSemaphoreRef(Ref):
    """The semaphore of what is waited for where it starts."""

    LABEL: ClassVar[str] = "lookup semaphore"


@ref(cache_hash=True)
class ExpertListRef(Ref):
    """The numbers of the chosen experts."""

    LABEL: ClassVar[str] = "list of {0.bank}"
    bank: p.ExpertPoolRef


@frozen
class Signature:
    """One core's: shapes of `operands`, tapes first, and of `states`; `inputs` are those of both that the kernel reads.

    `outputs` follow the chosen ids; `scratch` gives a shape, or several for a set of buffers of collectives.
    """

    operands: Mapping[p.ArrayRef, Shape]
    states: Mapping[p.ArrayRef, Shape]
    inputs: tuple[InputRef, ...]
    outputs: Mapping[ChosenRef | OutputRef, Shape]
    scratch: Mapping[Ref, Any]


def signature(program: p.Program) -> Signature:
    """What a Program's kernel takes and gives."""
    operands = {a.name: _shape(a) for a in traffic.operands(program)}
    states = {a.name: _shape(a) for a in program.arrays.values() if a.kind in ("state", "cache", "latents")}
    # Nothing that no op reads: of an operand that is not used a compiler has returned zeros from other ones' transfers.
    read = traffic.read_arrays(program)
    inputs = tuple(map(InputRef, (*operands, *(name for name in states if name in read))))
    outputs: dict[ChosenRef | OutputRef, Shape] = {ChosenRef(): jax.ShapeDtypeStruct((program.rows, 1), jnp.int32)}
    outputs |= {OutputRef(a.name): _shape(a) for a in program.outputs.values()}
    return Signature(operands, states, inputs, outputs, _scratch(program))


def operands(program: p.Program) -> dict[str, Shape]:
    """Weights as one core reads them, by their labels: tapes `[rows, 512]` of words, vectors, tables."""
    return labelled(signature(program).operands)


def states(program: p.Program) -> dict[str, Shape]:
    """States `[layers, rows, …]` and caches `[layers, rows, heads, positions, width]` of one core, by their labels."""
    return labelled(signature(program).states)


def labelled[T](arrays: Mapping[p.ArrayRef, T]) -> dict[str, T]:
    """As JAX and files know them: each label is of one array."""
    return {name.label: array for name, array in arrays.items()}


def _shape(array: p.Array) -> Shape:
    return jax.ShapeDtypeStruct(array.shape, DTYPES[array.dtype])


def _scratch(program: p.Program) -> dict[Ref, Any]:
    """Every buffer, ring and semaphore; a set of exchange buffers is a tuple."""
    dma = pltpu.SemaphoreType.DMA
    found: dict[Ref, Any] = {b.name: pltpu.VMEM(b.shape, DTYPES[b.dtype]) for b in program.buffers.values()}
    for ring in program.rings.values():
        found[ring.name] = pltpu.VMEM((ring.slots, ring.rows, 512), jnp.int32)
        found[SemaphoresRef(Way.SLOTS, ring.name)] = dma((ring.slots,))
    for copy in program.copies.values():
        if copy.name in program.arrays:
            found[SemaphoresRef(Way.LOADS, copy.name)] = dma((copy.slots,))
        if copy.name in program.outputs:
            found[SemaphoresRef(Way.SAVES, copy.name)] = dma((copy.slots,))
    for cache in program.caches.values():
        found[SemaphoresRef(Way.SLOTS, cache.name)] = dma((cache.slots, len(cache.buffers)))
    for bank in program.banks.values():
        found[ExpertListRef(bank.name)] = pltpu.SMEM((bank.most + 1,), jnp.int32)
        found[SemaphoresRef(Way.SLOTS, bank.name)] = dma((bank.slots,))
    found[LookupSemaphoreRef()] = dma(())
    for exchange in program.exchanges.values():
        found[exchange_set(program, exchange)] = collectives.scratch(collective(program, exchange))
    return found
