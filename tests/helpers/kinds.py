"""Kinds of faults that a Program can have and still start and wait for all that it moves, each as mutants of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from attrs import evolve
from helpers.mutants import bodies, ordered, placed
from helpers.rewrite import replaced, rewritten

from mks.dsl.collectives.collective import Operation
from mks.dsl.collectives.gather import GATHER
from mks.dsl.collectives.reduce_scatter import REDUCE_SCATTER
from mks.dsl.collectives.two_level import TWO_LEVEL
from mks.dsl.model import ir as m
from mks.dsl.model import ops as registry
from mks.dsl.model.expressions import walk
from mks.dsl.program import ir as p
from mks.dsl.program.ir.walk import Path

type Mutants = Iterator[p.Program]

_MOVES = (p.CopyStart, p.CopyWait, p.StoreStart, p.StoreWait, p.Start)


def _with(program: p.Program, kind: str, thing: Any, **changed: Any) -> p.Program:
    held = getattr(program, kind)
    return evolve(program, **{kind: held | {thing.name: evolve(thing, **changed)}})


def more_slots_than_room(program: p.Program) -> Mutants:
    """A bank with one slot more than its buffer."""
    for bank in program.banks.values():
        yield _with(program, "banks", bank, slots=bank.slots + 1)


def short_list(program: p.Program) -> Mutants:
    """A list of chosen experts that is shorter than what may be chosen."""
    for bank in program.banks.values():
        yield _with(program, "banks", bank, most=bank.most - 1)
        yield _with(program, "banks", bank, top=bank.top - 1)


def more_experts(program: p.Program) -> Mutants:
    """A bank of more experts than its array has, or of fewer."""
    for bank in program.banks.values():
        yield from (_with(program, "banks", bank, count=count) for count in (bank.count * 2, bank.count - 1))


def bank_without_axes(program: p.Program) -> Mutants:
    """A bank that is not shared out."""
    for bank in program.banks.values():
        if bank.axes:
            yield _with(program, "banks", bank, axes=())


def _caches(program: p.Program) -> list[p.Array]:
    return [array for array in program.arrays.values() if array.kind == "cache"]


def short_cache(program: p.Program) -> Mutants:
    """A cache in HBM that is shorter than its tiles."""
    for array in _caches(program):
        *before, positions, width = array.shape
        yield _with(program, "arrays", array, shape=(*before, positions - 128, width))


def cache_of_another_type(program: p.Program) -> Mutants:
    """A cache in HBM whose entries are of another type."""
    for array in _caches(program):
        yield _with(program, "arrays", array, dtype="f32" if array.dtype == "bf16" else "bf16")


def keys_for_values(program: p.Program) -> Mutants:
    """Keys and values exchanged: the caches, or the row's own entries."""
    for ring in program.caches.values():
        yield _with(program, "caches", ring, caches=ring.caches[::-1])
        yield _with(program, "caches", ring, caches=ring.caches[::-1], buffers=ring.buffers[::-1])
    for path, op in placed(program):
        if isinstance(op, p.Attend):
            yield replaced(program, path, (evolve(op, entries=op.entries[::-1]),))


def narrow_gather(program: p.Program) -> Mutants:
    """A gather that is narrower than its pieces."""
    for made in program.exchanges.values():
        if made.kind is GATHER:
            yield _with(program, "exchanges", made, width=made.width - 1)


def piece_beyond(program: p.Program) -> Mutants:
    """A piece that lies beyond its message, or beside its value."""
    for made in program.exchanges.values():
        if made.pieces:
            *first, last = made.pieces
            for start in (last.start + last.width, last.start + 1):
                yield _with(program, "exchanges", made, pieces=(*first, evolve(last, start=start)))


def read_beyond(program: p.Program) -> Mutants:
    """A collective that reads beyond its value."""
    for made in program.exchanges.values():
        yield _with(program, "exchanges", made, first=made.first + 1)


def wide_scatter(program: p.Program) -> Mutants:
    """A sum that is left scattered, wider than its buffer."""
    for made in program.exchanges.values():
        if made.kind is REDUCE_SCATTER:
            yield _with(program, "exchanges", made, width=made.width * 2)
            yield _with(program, "exchanges", made, width=made.width + 128)


def sum_over_fewer(program: p.Program) -> Mutants:
    """A collective over some of the axes that it must be over."""
    for made in program.exchanges.values():
        if len(made.axes) > 1:
            yield from (_with(program, "exchanges", made, axes=axes) for axes in (made.axes[:1], made.axes[1:]))


def no_pairs(program: p.Program) -> Mutants:
    """A sum in two levels over cores that are no pairs."""
    for made in program.exchanges.values():
        axes = made.axes[:1]
        if made.kind.operation is Operation.SUM and len(made.axes) > 1 and not program.schedule.paired(axes):
            changed = evolve(made, kind=TWO_LEVEL, axes=axes)
            yield evolve(program, exchanges=program.exchanges | {made.name: changed})


def view_beyond(program: p.Program) -> Mutants:
    """A view that ends beyond its buffer, or begins before it."""
    for name, view in program.views.items():
        for start in (view.start + 2 * program.buffers[view.buffer].shape[-1], view.start - 1):
            yield evolve(program, views=program.views | {name: evolve(view, start=start)})


def doubled_share(program: p.Program) -> Mutants:
    """A look-up or a choice of ids among twice as many."""
    for path, op in placed(program):
        if isinstance(op, p.Lookup | p.Argmax) and op.share is not None:
            yield replaced(program, path, (evolve(op, share=2 * op.share),))


def another_array(program: p.Program) -> Mutants:
    """A copy that loads another array of the same shape."""
    for copy in program.copies.values():
        for other in program.arrays.values():
            array = program.arrays.get(copy.array)
            if array is not None and other is not array and (other.shape, other.dtype) == (array.shape, array.dtype):
                yield _with(program, "copies", copy, array=other.name)


def guarded(program: p.Program) -> Mutants:
    """A value that is computed in some of its layers, and read in all."""
    for path, op in placed(program):
        guard = _some_layers(program, path)
        if isinstance(op, p.Compute | p.Put) and op.guard is None and guard is not None:
            yield replaced(program, path, (evolve(op, guard=guard),))


def _some_layers(program: p.Program, path: Path) -> m.Static | None:
    """A condition that holds in some layers of an op's part, and in others does not."""
    if len(path) < 5:
        return None
    layers = program.phases[path[0]].body[path[1]]
    assert isinstance(layers, p.LayerLoop)
    own = program.layers_of(layers.choices[path[2]].bodies[path[3]][0])
    for static, values in program.scalars.items():
        held = {bool(value) for layer, value in zip(program.phase.layer_parts, values, strict=True) if layer in own}
        if len(held) == 2:
            return static
    return None


def stale_read(program: p.Program) -> Mutants:
    """An element, or a carried value, that is set behind who reads it."""
    carried = {p.ValueRef("", name) for name in program.instance.model.decode.types}
    for path, body in bodies(program):
        for at, op in enumerate(body):
            late = isinstance(op, p.Put) or (isinstance(op, p.Compute) and op.outputs[0] in carried)
            if late and len(path) > 1 and any(not isinstance(later, _MOVES) for later in body[at + 1 :]):
                yield ordered(program, path, (*body[:at], *body[at + 1 :], op))


def updated_twice(program: p.Program) -> Mutants:
    """An update of a state that is done twice."""
    for path, op in placed(program):
        calls = [node for node in walk(op.node) if isinstance(node, m.Call)] if isinstance(op, p.Compute) else []
        if any(row.updates for call in calls if (row := registry.find(call.op)) is not None):
            yield replaced(program, path, (op, op))


def _without(program: p.Program, kind: type) -> Mutants:
    for path, op in placed(program):
        if isinstance(op, kind):
            yield replaced(program, path, ())


def without_put(program: p.Program) -> Mutants:
    """An element that is never set."""
    yield from _without(program, p.Put)


def without_emit(program: p.Program) -> Mutants:
    """Logits that never leave, or of which no id is chosen."""
    yield from _without(program, p.Emit)
    yield from _without(program, p.Argmax)


def without_save(program: p.Program) -> Mutants:
    """A state or an entry that never leaves, nor is waited for."""
    for name in program.outputs:
        if name in program.copies:
            yield rewritten(program, partial(_rid, name))


def _rid(copy: str, op: p.Op) -> tuple[p.Op, ...]:
    return () if isinstance(op, p.StoreStart | p.StoreWait) and op.copy == copy else (op,)


KINDS: tuple[Callable[[p.Program], Mutants], ...] = (
    more_slots_than_room,
    short_list,
    more_experts,
    bank_without_axes,
    short_cache,
    cache_of_another_type,
    keys_for_values,
    narrow_gather,
    piece_beyond,
    read_beyond,
    wide_scatter,
    sum_over_fewer,
    no_pairs,
    view_beyond,
    doubled_share,
    another_array,
    guarded,
    stale_read,
    updated_twice,
    without_put,
    without_emit,
    without_save,
)
