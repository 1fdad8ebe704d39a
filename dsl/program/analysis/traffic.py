"""What a Program reads from HBM and writes to it in one step, on one core: bytes as they lie there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import prod

from attrs import evolve

from ...records import frozen
from ...targets.targets import BYTES
from .. import ir as p
from ..ir.walk import walk
from ..layout.tiling import ROW_BYTES, WIDTH
from .routing_stats import alone, distinct, largest_group


@frozen
class Moved:
    """A line of the list, in bytes."""

    name: str
    bytes: int


@frozen
class Tape:
    """All that passes through a ring in a step; `own` are the weights' bytes, without padding."""

    ring: p.RingRef
    transfers: int
    bytes: int
    own: int

    @property
    def padding(self) -> int:
        """Bytes that are read and no weight."""
        return self.bytes - self.own


def tapes(program: p.Program) -> dict[p.RingRef, Tape]:
    """Each ring's tape."""
    found = {}
    for ring in program.rings:
        made = _passing(program, ring)
        found[ring] = Tape(
            ring,
            sum(times * len(product.tiling.transfers) for product, times in made),
            tape_rows(program, ring) * ROW_BYTES,
            sum(times * own_bytes(program, product) for product, times in made),
        )
    return found


def _passing(program: p.Program, ring: p.RingRef) -> list[tuple[p.Product, int]]:
    """The products that pass through a ring, and how often in a step."""
    counts = Counter(name for name, _ in program.transfers(ring))
    return [(program.products[name], times) for name, times in counts.items()]


def own_bytes(program: p.Program, product: p.Product) -> int:
    """One core's share of a product's weights in one layer."""
    weights = program.instance.model.weights
    shapes = [program.shares.weight_shape(weights[name]) for name in product.weights]
    if product.piece:
        # Of each head's rows the values' are one piece, the keys' the other.
        values = program.products[evolve(product.name, piece="expand")].widths[0]
        heads = sum(run.count * run.blocks for run in product.tiling.runs)
        rows = values if product.piece == "expand" else shapes[0][0] // heads - values
        shapes = [(heads * rows, shapes[0][1])]
    return sum(map(prod, shapes)) * product.tiling.bits // 8


def fetched(program: p.Program, bank: p.ExpertPool) -> float:
    """Experts that the core with most of them fetches in a layer, as expected were routing uniform."""
    groups = program.schedule.ways(bank.axes)
    chosen = distinct(bank.count * groups, bank.top, program.rows_at(bank.part))
    return largest_group(bank.count * groups, groups, round(chosen))


def chosen_once(program: p.Program, bank: p.ExpertPool) -> float:
    """Of the experts that a layer fetches, the part that a single row chose, as expected were routing uniform."""
    return alone(bank.count * program.schedule.ways(bank.axes), bank.top, program.rows_at(bank.part))


def reads(program: p.Program) -> tuple[Moved, ...]:
    """What comes in: caches whole, as at a full context; padding has lines of its own."""
    made, arrays, banks = tapes(program).values(), program.arrays, program.banks.values()
    looked_up = (
        (arrays[at.op.table], at.trips * program.rows_at(at.place))
        for at in walk(program)
        if isinstance(at.op, p.Lookup)
    )
    caches = kept(arrays, "cache")
    unused = sum(_unused(program, array) for array in arrays.values() if array.kind == "cache")
    found = (
        Moved("weights", sum(tape.own for tape in made)),
        Moved("padding of tapes", sum(tape.padding for tape in made)),
        Moved("experts, on the core with most", round(sum(_experts(program, bank, padding=False) for bank in banks))),
        Moved("padding of experts", round(sum(_experts(program, bank, padding=True) for bank in banks))),
        Moved("vectors", kept(arrays, "vectors")),
        Moved("rows of tables", sum(times * array_bytes(a) // a.shape[0] for a, times in looked_up)),
        Moved("values of the drafted model", kept(arrays, "taps")),
        Moved("states", kept(arrays, "state") // kept_after(program)),
        Moved("caches", caches - unused),
        Moved("padding of caches", unused),
    )
    return tuple(line for line in found if line.bytes)


def _experts(program: p.Program, bank: p.ExpertPool, padding: bool) -> float:
    each = bank.layout.padding if padding else bank.layout.nbytes - bank.layout.padding
    return program.times(bank.part) * fetched(program, bank) * each


def writes(program: p.Program) -> tuple[Moved, ...]:
    """What goes out."""
    kinds = {"states": "state", "entries of caches": "entry", "logits": "logits", "outputs": "value"}
    found = (Moved(name, kept(program.outputs, kind)) for name, kind in kinds.items())
    return tuple(line for line in found if line.bytes)


def kept_after(program: p.Program) -> int:
    """Of consecutive tokens a state is kept after each, and read after one of them."""
    return program.rows if program.consecutive else 1


def kept(arrays: Mapping[p.ArrayRef, p.Array], kind: str) -> int:
    """Bytes of all arrays of a kind."""
    return sum(array_bytes(array) for array in arrays.values() if array.kind == kind)


def array_bytes(array: p.Array) -> int:
    """Bytes in HBM."""
    return prod(array.shape) * BYTES[array.dtype]


def _unused(program: p.Program, cache: p.Array) -> int:
    """Bytes of a cache's entries beyond their own width: they lie in whole lanes."""
    room = cache.shape[-1]
    assert isinstance(cache.name, p.CacheRef)
    return array_bytes(cache) // room * (room - _entry_width(program, cache.name))


def _entry_width(program: p.Program, cache: p.CacheRef) -> int:
    for ring in program.caches.values():
        if ring.expanded is not None and cache in ring.caches:
            return (ring.expanded.key, ring.expanded.value)[ring.caches.index(cache)]
    assert isinstance(cache, p.ModelCacheRef)
    return program.shares.shape(program.instance.model.states[cache.state].type.shape)[-1]


def operands(program: p.Program) -> tuple[p.Array, ...]:
    """What a core reads of a checkpoint: tapes, int32 `[rows, 512]`, then small weights, tables and experts."""
    tapes = (p.Array(p.TapeRef(ring), (tape_rows(program, ring), WIDTH), "int32", "tape") for ring in program.rings)
    return (*tapes, *(a for a in program.arrays.values() if a.kind in ("vectors", "table", "bank")))


def tape_rows(program: p.Program, ring: p.RingRef) -> int:
    """A tape's length."""
    return sum(times * product.tiling.rows for product, times in _passing(program, ring))


def read_arrays(program: p.Program) -> frozenset[p.ArrayRef]:
    """The arrays in HBM that a step reads, by name; latents of which expanded keys were made are not among them."""
    ops = [at.op for at in walk(program)]
    found: set[p.ArrayRef] = {program.copies[op.copy].array for op in ops if isinstance(op, p.CopyStart)}
    found |= {op.table for op in ops if isinstance(op, p.Lookup)}
    found |= {bank.array for bank in program.banks.values()}
    return frozenset(found | {name for ring in program.caches.values() for name in ring.caches})
