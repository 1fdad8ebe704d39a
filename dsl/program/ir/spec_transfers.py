"""What transfers touch: tapes, entries for layers, rows of tables, tiles of caches, experts, outputs."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.facts import STEP
from ...targets.lanes import padded
from .. import ir as p
from ..layout.lanes import whole_lanes
from ..layout.tiling import WIDTH
from .spec_access import Access, Extents, How, Where, Wrong, reads


def start(op: p.Start, place: str, program: p.Program) -> Iterator[Access]:
    yield Access(How.FILL, Where.RING, op.ring, (range(1), range(program.rings[op.ring].rows)))


def wait(op: p.Wait, place: str, program: p.Program) -> Iterator[Access]:
    yield Access(How.READ, Where.RING, op.ring, (range(len(op.rows)), range(max(op.rows, default=0))))


def entry(copy: p.Copy, program: p.Program) -> tuple[Extents, Extents, str]:
    """An entry of a copy in HBM and in its slot, and its type: as its array, or else its output, is declared.

    Of consecutive tokens a state's slot begins with what it was before the first of them.
    """
    array = program.arrays.get(copy.array) or program.outputs[copy.name]
    shape = array.shape[1:]
    before = array.kind == "state" and program.phase_of(copy.part or STEP).consecutive
    return shape, (shape[0] + before, *shape[1:]), array.dtype


def _slots(copy: p.Copy) -> range:
    return range(copy.slots)


def load(op: p.CopyStart, place: str, program: p.Program) -> Iterator[Access]:
    copy = program.copies[op.copy]
    whole, slot, dtype = entry(copy, program)
    yield Access(How.LEAVE, Where.ARRAY, copy.array, (program.entries(copy.part), *whole), dtype)
    yield Access(How.FILL, Where.BUFFER, copy.buffer, (_slots(copy), *slot), dtype)


def loaded(op: p.CopyWait, place: str, program: p.Program) -> Iterator[Access]:
    yield Access(How.LEAVE, Where.ARRAY, program.copies[op.copy].array)


def saved(op: p.StoreWait, place: str, program: p.Program) -> Iterator[Access]:
    yield Access(How.FILL, Where.OUTPUT, program.copies[op.copy].name)


def save(op: p.StoreStart, place: str, program: p.Program) -> Iterator[Access]:
    copy = program.copies[op.copy]
    whole, slot, dtype = entry(copy, program)
    yield Access(How.LEAVE, Where.BUFFER, copy.buffer, (_slots(copy), *slot), dtype)
    yield Access(How.FILL, Where.OUTPUT, op.copy, (program.entries(copy.part), *whole), dtype)


def cached(name: p.CacheRef, ring: p.CacheRing, program: p.Program) -> tuple[int, int, str]:
    """Heads of a cache, the width of an entry in whole lanes, and its type."""
    states, kept = program.instance.model.states, ring.expanded
    if isinstance(name, p.ModelCacheRef) and name.state in states:
        state = states[name.state]
        shape = whole_lanes(program.shares.shape(state.type.shape))
        return (*(shape if len(shape) == 2 else (1, shape[0])), program.instance.dtype(state.type))
    if kept is None or name not in ring.caches:
        raise Wrong(f"`{ring.name}` has a cache `{name}`, which the model has not")
    (call,) = program.shares.facts.latent_attention(ring.part)
    q = program.shares.shape(call.args[0].type.shape)
    latent = states[kept.latent.state]
    width = (kept.key, kept.value)[ring.caches.index(name)]
    return q[0], padded(width), program.instance.dtype(latent.type)


def tiles(ring: p.CacheRing, program: p.Program) -> Iterator[tuple[p.CacheRef, p.BufferRef, Extents, Extents, str]]:
    for name, buffer in zip(ring.caches, ring.buffers, strict=True):
        heads, width, dtype = cached(name, ring, program)
        rows = program.of.sequences
        held = (program.entries(ring.part), rows, heads, range(ring.tiles * ring.tile), width)
        yield name, buffer, held, (range(ring.slots), heads, ring.tile, width), dtype


def start_tiles(op: p.StartTiles, place: str, program: p.Program) -> Iterator[Access]:
    for name, buffer, held, slots, dtype in tiles(program.caches[op.ring], program):
        yield Access(How.LEAVE, Where.ARRAY, name, held, dtype)
        yield Access(How.FILL, Where.BUFFER, buffer, slots, dtype)


def fetch(op: p.Fetch, place: str, program: p.Program) -> Iterator[Access]:
    bank = program.banks[op.bank]
    one = (bank.layout.rows, WIDTH)
    yield Access(How.LEAVE, Where.ARRAY, bank.array, (program.entries(bank.part), bank.count, *one), "int32")
    yield Access(How.FILL, Where.BUFFER, bank.name, (range(op.first, op.stop), *one), "int32")


def emit(op: p.Emit, place: str, program: p.Program) -> Iterator[Access]:
    held = program.buffers[op.buffer]
    yield reads(op.buffer)
    yield Access(How.FILL, Where.OUTPUT, op.output, held.shape, held.dtype)
