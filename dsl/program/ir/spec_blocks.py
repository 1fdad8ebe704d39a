"""What ops touch that look up rows, and those of a block: loops over its rows, its attention, what it keeps."""

from __future__ import annotations

from collections.abc import Iterator

from ...collectives.collective import Operation
from ...targets.lanes import padded
from .. import ir as p
from ..layout.lanes import table_words
from .spec_access import Access, How, Where, Wrong, reads, writes
from .spec_compute import expression
from .spec_transfers import tiles


def keep(op: p.Keep, place: str, program: p.Program) -> Iterator[Access]:
    yield from expression(op.node, place, program)
    held = program.outputs[op.buffer]
    if held.kind != "entry" or held.part != place:
        raise Wrong(f"`{op.buffer}` keeps entries of `{held.part}`; `{place}` writes them")
    yield writes(op.buffer, (program.entries(place), program.rows_at(place), *held.shape[2:]), held.dtype)


def row_loop(op: p.RowLoop, place: str, program: p.Program) -> Iterator[Access]:
    """What goes from row to row begins as the first row's; what it consists of touches the rest."""
    if program.home(op.place) != place or not 0 <= op.start < op.stop <= program.rows_at(place):
        raise Wrong(f"`{op.place}` loops over the rows {op.start} .. {op.stop} of `{place}`")
    for whole, one in op.carried:
        view, held = program.views[whole], program.buffers[one]
        yield reads(view.buffer, None, held.dtype)
        yield writes(one, (1, *view.shape))


def lookup(op: p.Lookup, place: str, program: p.Program) -> Iterator[Access]:
    yield from expression(op.index, place, program)
    table = program.instance.model.weights[op.table.weight]
    rows, width = program.shares.weight_shape(table)
    words = table_words(width, program.instance.dtype(table.type))
    if op.share not in (None, rows):
        raise Wrong(f"`{op.table}` has {rows} rows on a core; {op.share} are looked up")
    if (op.share is None) != (rows == program.instance.length(table.shape[0])):
        raise Wrong(f"`{op.table}` has {rows} rows of {program.instance.length(table.shape[0])} on a core")
    yield Access(How.LEAVE, Where.ARRAY, op.table, (rows, 1, words), "int32")
    yield writes(op.buffer, (program.rows_at(place), 1, words), "int32")


def attend_block(op: p.AttendBlock, place: str, program: p.Program) -> Iterator[Access]:
    ring, shares, rows = program.caches[op.ring], program.shares, program.rows_at(place)
    heads, width = shares.shape(op.call.args[0].type.shape)
    yield reads(op.queries[0], (rows, heads, padded(width)), program.instance.working)
    yield writes(op.result, (rows, heads, padded(shares.length(op.call.type.shape[-1]))), "f32")
    each = zip(op.entries, op.earlier, tiles(ring, program), strict=True)
    for own, earlier, (name, buffer, _, slots, dtype) in each:
        kept = program.outputs[earlier]
        if earlier != p.EntryRef(name) or kept.part is None:
            raise Wrong(f"`{earlier}` are no entries of `{name}`")
        if program.layers_of(kept.part) != program.layers_of(place):
            raise Wrong(f"`{kept.part}`, which gives `{name}` its entries, runs in other layers than `{place}`")
        yield reads(own, (rows, slots[1], slots[3]), dtype)
        yield reads(earlier, (program.entries(place), program.rows_at(kept.part), slots[1], slots[3]), dtype)
        yield reads(buffer, slots, dtype)


def argmax_value(op: p.ArgmaxValue, place: str, program: p.Program) -> Iterator[Access]:
    axis = op.call.args[0].type.shape[-1]
    if (op.exchange is None) != (not program.shares.over_values(axis)):
        raise Wrong(f"each core has {program.shares.length(axis)} of {program.instance.length(axis)} numbers")
    made = None if op.exchange is None else program.exchanges[op.exchange]
    if made is not None and (made.kind.operation is not Operation.ARGMAX or made.value != op.value):
        raise Wrong(f"`{made.name}` is a {made.kind.name} of `{made.value}`; the ids are chosen by `{op.value}`")
    yield reads(op.value, (program.rows_at(place), program.shares.length(axis)), "f32")
    yield writes(op.result, (program.rows_at(place),), "int32")
