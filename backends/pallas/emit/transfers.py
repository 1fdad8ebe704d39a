"""What moves between HBM and VMEM: tapes through rings, copies for layers, rows of tables, tiles of caches."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ....dsl.model import ir as m
from ....dsl.program import ir as p
from ..collectives.peers import Scalar
from ..layout.tape import IDLE, KIND_BITS, kinds
from .context import Core, following, remainder, when
from .signature import (
    ExpertListRef,
    InputRef,
    LookupSemaphoreRef,
    OutputRef,
    SemaphoresRef,
    StepInput,
    TapeTableRef,
    TileListRef,
    Way,
)


def start(op: p.Start, core: Core) -> None:
    """The next transfers of a tape, which its table tells: where each begins, and how many rows it has."""
    ring = core.program.rings[op.ring]
    waited, started, slot = core.counters[op.ring]
    sizes = kinds(core.program, op.ring)
    table, starts = core.given[TapeTableRef(op.ring)], core.starts[core.at.path]
    for i, counts in enumerate(starts.counts):
        entry = table[started]
        first, kind = pl.multiple_of((entry >> KIND_BITS) * 8, 8), entry & ((1 << KIND_BITS) - 1)
        for rows in counts:
            if rows == IDLE:
                continue
            with jax.named_scope(starts.scope(i, rows)):
                act = partial(_start_tile, core, op.ring, first, rows, slot)
                when(len(counts) == 1 or kind == sizes.index(rows), act)
        started, slot = started + 1, following(slot, ring.slots)
    core.counters[op.ring] = (waited, started, slot)


def _start_tile(core: Core, ring: p.RingRef, first: Scalar, rows: int, slot: Scalar) -> None:
    _tile(core, ring, first, rows, slot).start()


def _tile(core: Core, ring: p.RingRef, first: Scalar, rows: int, slot: Scalar) -> Any:
    source = core.refs[InputRef(p.TapeRef(ring))].at[pl.ds(first, rows)]
    return pltpu.make_async_copy(
        source, core.refs[ring].at[slot, pl.ds(0, rows)], core.refs[SemaphoresRef(Way.SLOTS, ring)].at[slot]
    )


def wait(op: p.Wait, core: Core) -> None:
    """The tiles that arrive next; which slots they are in is remembered for the product."""
    ring = core.program.rings[op.ring]
    slot, started, next_slot = core.counters[op.ring]
    core.arrived = []
    for rows in op.rows:
        _tile(core, op.ring, 0, rows, slot).wait()
        core.arrived.append((slot, rows))
        slot = following(slot, ring.slots)
    core.counters[op.ring] = (slot, started, next_slot)


def load(op: p.CopyStart, core: Core) -> None:
    """A layer's entry into its slot."""
    copy = core.program.copies[op.copy]
    if copy.part is None or (copy.part == core.place and not op.ahead):
        _entry(copy, core.index, core).start()
        return
    index, runs = core.run_of(copy.part, op.ahead)
    when(runs, lambda: _entry(copy, index, core).start())


def loaded(op: p.CopyWait, core: Core) -> None:
    """This layer's entry has arrived."""
    _entry(core.program.copies[op.copy], core.index, core).wait()


def _entry(copy: p.Copy, index: Scalar, core: Core) -> Any:
    slot = remainder(index, copy.slots)
    source, target = core.refs[InputRef(copy.array)].at[index], core.refs[copy.buffer].at[slot]
    if _is_kept(copy, core):
        source, target = source.at[core.given[StepInput.KEPT][0]], target.at[0]
    return pltpu.make_async_copy(source, target, core.refs[SemaphoresRef(Way.LOADS, copy.name)].at[slot])


def _is_kept(copy: p.Copy, core: Core) -> bool:
    """Whether a copy is a state as it was before the first of consecutive tokens, and then after each."""
    return core.program.consecutive and copy.name in core.program.arrays and copy.name in core.program.outputs


def save(op: p.StoreStart, core: Core) -> None:
    """This layer's entry leaves its slot."""
    _saving(core.program.copies[op.copy], core.index, core).start()


def saved(op: p.StoreWait, core: Core) -> None:
    """What was saved from the slot that the layer is about to use has left."""
    copy = core.program.copies[op.copy]
    assert copy.part is not None
    if op.all_:
        count = core.program.outputs[copy.name].shape[0]
        for last in range(max(0, count - copy.slots), count):
            _saving(copy, last, core).wait()
        return
    index, runs = core.run_of(copy.part, op.ahead)
    when(runs & (index >= copy.slots), lambda: _saving(copy, index, core).wait())


def _saving(copy: p.Copy, index: Scalar, core: Core) -> Any:
    slot = remainder(index, copy.slots)
    source = core.refs[copy.buffer].at[slot]
    if _is_kept(copy, core):
        source = source.at[pl.ds(1, core.rows)]
    target = core.refs[OutputRef(copy.name)].at[index]
    return pltpu.make_async_copy(source, target, core.refs[SemaphoresRef(Way.SAVES, copy.name)].at[slot])


def look_up(op: p.Lookup, core: Core) -> None:
    """Each row's entry of a table; where another core has it, any."""
    assert isinstance(op.index, m.Input)
    table, semaphore = core.refs[InputRef(op.table)], core.refs[LookupSemaphoreRef()]
    scalars = core.given[StepInput.IDS if op.index.name == "token" else StepInput.AT]

    def row(b: int) -> Any:
        at = own_entry(scalars[b], op.table.weight, core)
        if op.share is not None:
            at = jnp.clip(at, 0, op.share - 1)
        return pltpu.make_async_copy(table.at[at], core.refs[op.buffer].at[b], semaphore)

    for copy in [row(b) for b in range(core.rows)]:
        copy.start()
    for b in range(core.rows):
        row(b).wait()


def own_entry(index: jax.Array, weight: str, core: Core) -> jax.Array:
    """The number of a table's entry among this core's: one that it lacks is below 0, or beyond its share."""
    axis = core.program.instance.model.weights[weight].shape[0]
    return nearest(index, core.program.instance.length(axis)) - core.first(axis)


def nearest(index: jax.Array, count: int) -> jax.Array:
    """An entry that a table of `count` has, as the reference takes it: of those beyond the ends the nearest.

    A chip does not check what a transfer reads.
    """
    return jnp.clip(index, 0, count - 1)


def emit_output(op: p.Emit, core: Core) -> None:
    """A buffer into an output, all of it."""
    copy = pltpu.make_async_copy(core.refs[op.buffer], core.refs[OutputRef(op.output)], core.refs[LookupSemaphoreRef()])
    copy.start()
    copy.wait()


def fetch(op: p.Fetch, core: Core) -> None:
    """Some of the chosen experts."""
    bank = core.program.banks[op.bank]
    total = core.refs[ExpertListRef(bank.name)][0]
    for i in range(op.first, op.stop):
        when(i < total, lambda i=i: fetch_expert(bank, i, i, core))


def fetch_expert(bank: p.ExpertPool, number: Scalar, slot: Scalar, core: Core) -> None:
    """The expert of that number in the list of the chosen ones."""
    _expert(bank, core.refs[ExpertListRef(bank.name)][number + 1], slot, core).start()


def wait_expert(bank: p.ExpertPool, slot: Scalar, core: Core) -> None:
    """A slot's expert has arrived."""
    _expert(bank, 0, slot, core).wait()


def _expert(bank: p.ExpertPool, expert: Scalar, slot: Scalar, core: Core) -> Any:
    return pltpu.make_async_copy(
        core.refs[InputRef(bank.array)].at[core.index, expert],
        core.refs[bank.name].at[slot],
        core.refs[SemaphoresRef(Way.SLOTS, bank.name)].at[slot],
    )


def start_tiles(op: p.StartTiles, core: Core) -> None:
    """The first tiles of the layer's caches."""
    ring = core.program.caches[op.ring]
    total = core.given[TileListRef(ring.tile)][0]
    for i in range(ring.slots):
        when(i < total, lambda i=i: start_tile(ring, i, i, core))


def start_tile(ring: p.CacheRing, number: Scalar, slot: Scalar, core: Core) -> None:
    """The tile of that number, keys and values."""
    row, tile = unpacked(core.given[TileListRef(ring.tile)][number + 1])
    for copy in _tiles(ring, row, tile, slot, core):
        copy.start()


def wait_tile(ring: p.CacheRing, slot: Scalar, core: Core) -> None:
    """A slot's keys and values have arrived."""
    for copy in _tiles(ring, 0, 0, slot, core):
        copy.wait()


def _tiles(ring: p.CacheRing, row: Scalar, tile: Scalar, slot: Scalar, core: Core) -> list[Any]:
    at = pl.ds(pl.multiple_of(jnp.int32(tile) * ring.tile, ring.tile), ring.tile)
    return [
        pltpu.make_async_copy(
            core.refs[InputRef(cache)].at[core.index, row, :, at],
            core.refs[buffer].at[slot],
            core.refs[SemaphoresRef(Way.SLOTS, ring.name)].at[slot, i],
        )
        for i, (cache, buffer) in enumerate(zip(ring.caches, ring.buffers, strict=True))
    ]


def unpacked(entry: Scalar) -> tuple[Scalar, Scalar]:
    """The row and the tile of an entry of a list of tiles."""
    return entry >> 16, entry & 0xFFFF


def tiles(positions: jax.Array, tile: int, context: int) -> jax.Array:
    """Which tiles a step reads, int32: how many, then row * 65536 + tile of each, -1 beyond the last."""
    most = -(-context // tile)
    counts = jnp.clip(-(-positions // tile), 0, most)
    ends = jnp.cumsum(counts)
    number = lax.iota(jnp.int32, positions.shape[0] * most + 1)
    row = jnp.sum(number[:, None] >= ends[None], axis=1)
    within = number - jnp.where(row > 0, ends[jnp.maximum(row - 1, 0)], 0)
    entry = jnp.where(number < ends[-1], row * 65536 + within, -1)
    return jnp.concatenate([ends[-1:], entry]).astype(jnp.int32)
