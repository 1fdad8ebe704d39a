"""The proof that a Program does what the definition says, on every core and for any number of layers of its kinds.

What is proven, one property a file:

* `reach`: each op touches what `spec` says of it, and things are what `spec_resources` makes of them: within
  buffers, arrays and rings, of one shape and type, over the right axes of the mesh;
* `rings`, `copies`, `collectives`: what is read from a slot was waited for, and no transfer starts into
  a slot that may still be read or saved, or that another fills; every start has one wait, which counts its bytes, and
  none waits for what never starts; at the end nothing is under way; a collective is received before the next one uses
  its buffers, all cores have entered before the first, and all run the same ones in the same order;
* `buffers`: a value is computed before it is read, in a buffer that nothing else uses;
* `definition`: each name, state, cache and output becomes what the definition says, of the same weights and inputs,
  and no share of a sum is taken for the sum.

What is assumed, and where it is checked instead:

* ops compute what they are called after, and collectives what they say, message by message (`tests/backends/pallas`,
  each op and kernel against the reference; `backends/pallas/collectives` argues for the collectives);
* inside `Attend` and `Experts` tiles and experts are taken one by one, each waited for and its slot refilled after its
  use (`helpers.simulate` follows every order of events; interpreted kernels in both modes);
* ids, positions and `kept` are within tables, caches and rows: the host sees to that before the call;
* packing lays weights on tapes and in vectors where products and views say (`mks verify`, `tests/models`);
* the layer table and the tape's table are those of the Program (`tests/backends/pallas`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from attrs import evolve

from ...diagnostics import Diagnostic, ordered
from ...model import ir as m
from .. import ir as p
from ..ir.scratch import ExchangeSet, exchange_set
from ..ir.walk import Placed, flat, phases, walk
from .buffers import shared, values_machine
from .collectives import (
    bank_machine,
    barrier_machine,
    exchange_machine,
    set_of,
    tiles_machine,
)
from .copies import copies_machine
from .definition import meaning_faults
from .paths import Fault, Table, check, layers, layers_of, track
from .reach import Touched, reach_faults, thing_faults, touched_by
from .rings import ring_machine, ring_track, tape_faults
from .witness import diagnostic


def prove(program: p.Program) -> list[Diagnostic]:
    """Each property that does not hold, with the places in the definition and the steps that lead there.

    An empty list is a proof. What is wrong comes from lowering, not from the text: shipped definitions have none.
    """
    return list(ordered(diagnostic(program, fault) for fault in faults(program)))


def prove_all(programs: Iterable[p.Program]) -> list[Diagnostic]:
    """The same of several Programs. Of those that differ in rows only, the first that gets so far is walked for all."""
    walked: list[tuple[object, ...]] = []
    found: list[Diagnostic] = []
    for program in programs:
        bones = _bones(program)
        alike = bones in walked
        ops, touched, wrong = _by_itself(program, form=not alike)
        if not wrong and not alike:
            walked.append(bones)
            wrong = list(_walked(program, ops, touched))
        found += [diagnostic(program, fault) for fault in wrong]
    return list(ordered(found))


def _bones(program: p.Program) -> tuple[object, ...]:
    """All of a Program that its form and its walks depend on: everything but rows, and what arrays hold for each."""
    # Of what has slots, heads or elements before its rows, the columns; of a value all but its rows.
    apart = {copy.buffer for copy in program.copies.values()} | {
        made for product in program.products.values() if product.piece for made in (product.operand, product.result)
    }
    apart |= {ref for ref in program.buffers if isinstance(ref, p.ModelBufferRef | p.StateRef)}
    buffers = {
        b.name: (b.dtype, b.place, b.shape[:: max(1, len(b.shape) - 1)] if b.name in apart else b.shape[1:])
        for b in program.buffers.values()
    }
    for name in apart & buffers.keys() - {copy.buffer for copy in program.copies.values()}:
        dtype, place, shape = buffers[name]
        buffers[name] = dtype, place, shape[-1:]
    banks = [evolve(bank, most=0) for bank in program.banks.values()]
    arrays = [
        [(name, each.kind, each.part) for name, each in held.items()] for held in (program.arrays, program.outputs)
    ]
    phases = [(phase.step.name, phase.body) for phase in program.phases]
    held = (
        phases,
        program.views,
        program.rings,
        program.products,
        program.copies,
        program.caches,
        program.exchanges,
        program.turns,
    )
    return (id(program.schedule), id(program.instance), banks, buffers, arrays, *held)


def faults(program: p.Program) -> list[Fault]:
    """What does not hold, the first fault of each resource; what a Program computes is asked where all else holds."""
    ops, touched, wrong = _by_itself(program)
    return wrong or list(_walked(program, ops, touched))


def _by_itself(program: p.Program, *, form: bool = True) -> tuple[tuple[Placed, ...], Touched, list[Fault]]:
    """A Program's ops, what they touch, and what is wrong with what it is made of; `form`: with its form too."""
    ops = tuple(walk(program))
    wrong = [*(_form(program) if form else ()), *thing_faults(program)]
    if wrong:
        return ops, {}, wrong
    touched, wrong = touched_by(program, ops)
    return ops, touched, wrong or list(reach_faults(program, ops, touched))


def _walked(program: p.Program, ops: tuple[Placed, ...], touched: Touched) -> Iterator[Fault]:
    """What goes wrong in some order of events, or else in what is computed: rows have no part in it."""
    moved = list(_orders(program, ops, touched))
    yield from moved or meaning_faults(program)


def _orders(program: p.Program, ops: tuple[Placed, ...], touched: Touched) -> Iterator[Fault]:
    """What goes wrong in some order of events, in some number of layers."""
    table = layers(program)
    yield from shared(program, ops, touched)
    yield from _rings(program, table)
    yield from _copies(program, table, touched)
    yield from _exchanges(program, table)
    for ring in program.caches:
        yield from _found(check(tiles_machine(program, ring), track(program, partial(_of_list, ring)), table))
    for name in program.banks:
        yield from _found(check(bank_machine(program, name), track(program, partial(_of_list, name)), table))

    def uses(at: Placed) -> bool:
        found = touched[at.path]
        return bool(found.reads or found.writes or found.updates)

    yield from _found(check(values_machine(program, touched), track(program, uses), table))


def _form(program: p.Program) -> Iterator[Fault]:
    """Phases are the definition's steps in its order, and each has one loop over its layers: the order of the tapes."""
    steps = [phase.step.name for phase in program.phases]
    if steps != [name for name in program.instance.model.steps if name in steps]:
        yield Fault("E223", "the phases are not the definition's steps, each once in its order", None)
    for phase, ops in zip(program.phases, phases(program), strict=True):
        yield from _form_of(phase, ops, program)


def _form_of(phase: p.Phase, ops: tuple[Placed, ...], program: p.Program) -> Iterator[Fault]:
    """One loop over the layers, which runs what the layer table says."""
    loops = [at for at in ops if isinstance(at.op, p.LayerLoop)]
    right = {at.path for loop in loops for at in (loop, *loop.inside)}
    found, all_ = [at.op for at in loops], list(flat(ops))
    inner = [at.op for at in all_ if isinstance(at.op, p.LayerSwitch | p.LayerLoop) and at.path not in right]
    apart = [
        each.op
        for at in all_
        if isinstance(at.op, p.Experts)
        for each in at.inside
        if not isinstance(each.op, p.Compute | p.ExpertDot)
    ]
    if len(found) > 1 or inner:
        fault = Fault("E223", "layers are not run once, each from its first part to its last", (found + inner)[-1])
    elif apart:
        fault = Fault("E223", "what is done with an expert moves nothing, and talks to nobody", apart[0])
    elif found and layers_of(phase) != list(phase.layer_parts.items()):
        fault = Fault("E223", "the layers that run are not those of the layer table", found[0])
    elif (twice := _unlike([op for op in found if isinstance(op, p.LayerLoop)])) is not None:
        fault = Fault("E223", f"`{twice}` stands twice in a layer, and is not the same there", found[0])
    elif not found and any(made.place in phase.layers for made in program.products.values()):
        fault = Fault("E223", "no layer runs", None)
    else:
        return
    fault.place = phase.place
    yield fault


def _unlike(loops: list[p.LayerLoop]) -> str | None:
    """A part that has other ops where it stands in a layer again."""
    known: dict[str, tuple[p.Op, ...]] = {}
    for part, body in (each for loop in loops for choice in loop.choices for each in choice.bodies):
        if known.setdefault(part, body) != body:
            return part
    return None


def _rings(program: p.Program, table: Table) -> Iterator[Fault]:
    for ring in program.rings:
        used = ring_track(program, ring)
        wrong = list(tape_faults(program, ring, used))
        yield from wrong
        if not wrong:
            total = sum(len(program.products[name].tiling.transfers) for name, _ in program.transfers(ring))
            yield from _found(check(ring_machine(program, ring, None), used, table, ring_machine(program, ring, total)))


def _copies(program: p.Program, table: Table, touched: Touched) -> Iterator[Fault]:
    for buffer in dict.fromkeys(copy.buffer for copy in program.copies.values()):
        own = {copy.name for copy in program.copies.values() if copy.buffer == buffer}

        def uses(at: Placed, buffer: p.BufferRef = buffer, own: set[p.ArrayRef] = own) -> bool:
            if isinstance(at.op, p.CopyStart | p.CopyWait | p.StoreStart | p.StoreWait):
                return at.op.copy in own
            found = touched[at.path]
            return buffer in found.reads or buffer in found.updates or buffer in found.writes

        yield from _found(check(copies_machine(program, buffer, touched), track(program, uses), table))


def _exchanges(program: p.Program, table: Table) -> Iterator[Fault]:
    def meets(at: Placed) -> bool:
        return isinstance(at.op, p.Barrier) or set_of(program, at.op) is not None

    yield from _found(check(barrier_machine(program), track(program, meets), table))
    for key in dict.fromkeys(exchange_set(program, made) for made in program.exchanges.values()):

        def own(at: Placed, key: ExchangeSet = key) -> bool:
            return set_of(program, at.op) == key

        yield from _found(check(exchange_machine(), track(program, own), table))


def _of_list(name: m.Ref, at: Placed) -> bool:
    """Whether an op goes through tiles of a cache, or chosen experts, one by one."""
    match op := at.op:
        case p.StartTiles() | p.Attend() | p.AttendBlock():
            return op.ring == name
        case p.Route() | p.Fetch() | p.Experts():
            return op.bank == name
    return False


def _found(fault: Fault | None) -> tuple[Fault, ...]:
    return () if fault is None else (fault,)
