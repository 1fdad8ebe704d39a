"""The proof that a Program neither races nor hangs: on any of its cores, for any number of layers of its kinds.

What is proven:

* what is read from a slot was waited for, and no transfer starts into a slot that may still be read or saved, or that
  another transfer fills;
* every start has one wait, which counts its bytes, and none waits for what never starts; at the end nothing is under
  way;
* a collective is received before the next one uses its buffers, all cores have entered before the first, and all run
  the same ones in the same order;
* a value is computed before it is read, in a buffer that nothing else uses.

How tiles are taken one by one inside `Attend`, and messages inside a collective, is not in the Program: there the
backend's own argument holds, see `backends/pallas/collectives.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from attrs import evolve

from ..diagnostics import Diagnostic, ordered
from ..model.facts import STEP
from . import ir as p
from .proof_copies import copies_machine
from .proof_exchanges import bank_machine, barrier_machine, exchange_machine, set_of, tiles_machine
from .proof_paths import Fault, Parts, check, layers, track
from .proof_rings import ring_machine, ring_track, tape_faults
from .proof_touches import Touched, Touches, touches
from .proof_values import placed, rooms, shared, values_machine
from .proof_witness import diagnostic
from .work import exchange_set


def prove(program: p.Program) -> list[Diagnostic]:
    """Each property that does not hold, with the places in the definition and the steps that lead there.

    An empty list is a proof. What is wrong comes from lowering, not from the text: shipped definitions have none.
    """
    return list(ordered(diagnostic(program, fault) for fault in faults(program)))


def prove_all(programs: Iterable[p.Program]) -> list[Diagnostic]:
    """The same of several Programs. The walks over those that differ in shapes only are made once."""
    walked: list[p.Program] = []
    found: list[Diagnostic] = []
    for program in programs:
        form = list(_form(program))
        said = [*form, *(() if form else rooms(program))]
        bones = _bones(program)
        if not form and not any(_alike(bones, other) for other in walked):
            walked.append(bones)
            said += _walks(bones)
        found += [diagnostic(program, fault) for fault in said]
    return list(ordered(found))


def faults(program: p.Program) -> Iterator[Fault]:
    """What does not hold, the first fault of each resource."""
    form = list(_form(program))
    yield from form
    if not form:
        yield from rooms(program)
        yield from _walks(_bones(program))


def _bones(program: p.Program) -> p.Program:
    """A Program without what the number of rows changes, so that no walk can depend on it.

    Of buffers there are the slots, where copies have some; arrays and outputs have no shapes.
    """
    slotted = {copy.buffer for copy in program.copies.values()}
    return evolve(
        program,
        rows=0,
        consecutive=False,
        buffers={b.name: evolve(b, shape=b.shape[: b.name in slotted]) for b in program.buffers.values()},
        banks={bank.name: evolve(bank, most=0) for bank in program.banks.values()},
        arrays={array.name: evolve(array, shape=()) for array in program.arrays.values()},
        outputs={array.name: evolve(array, shape=()) for array in program.outputs.values()},
    )


def _alike(one: p.Program, other: p.Program) -> bool:
    """Whether walks over both find the same: all else is that of one schedule."""
    if one.schedule is not other.schedule or one.instance is not other.instance:
        return False
    return all(
        getattr(one, name) == getattr(other, name)
        for name in (
            "body",
            "buffers",
            "views",
            "rings",
            "products",
            "copies",
            "caches",
            "banks",
            "exchanges",
            "turns",
            "arrays",
            "outputs",
        )
    )


def _walks(program: p.Program) -> Iterator[Fault]:
    """What does not hold along the layers."""
    table = layers(program)
    ops = list(placed(program.body))
    touched: Touched = {(id(op), place): touches(op, place, program) for op, place in ops}
    yield from shared(program, ops, touched)
    yield from _rings(program, table)
    yield from _copies(program, table, touched)
    yield from _exchanges(program, table)
    for name in program.caches:
        yield from _found(check(tiles_machine(program, name), track(program, partial(_of_list, name)), table))
    for name in program.banks:
        yield from _found(check(bank_machine(program, name), track(program, partial(_of_list, name)), table))
    every = track(program, lambda op, place: touched[id(op), place] != Touches((), ()))
    yield from _found(check(values_machine(program, touched), every, table))


def _form(program: p.Program) -> Iterator[Fault]:
    """One loop over the layers, which runs what the layer table says: the order of the tapes."""
    found = [op for op in program.body if isinstance(op, p.Layers)]
    inner = [op for op, _ in placed(program.body) if isinstance(op, p.Choice | p.Layers)]
    apart = [op for outer, _ in placed(program.body) if isinstance(outer, p.Experts) for op in outer.body
             if not isinstance(op, p.Compute | p.ExpertDot)]  # fmt: skip
    table = program.layer_parts
    if len(found) > 1 or inner:
        yield Fault("E223", "layers are not run once, each from its first part to its last", (found + inner)[-1])
    elif apart:
        yield Fault("E223", "what is done with an expert moves nothing, and talks to nobody", apart[0])
    elif found and layers(program) != list(table.items()):
        yield Fault("E223", "the layers that run are not those of the layer table", found[0])
    elif table and not found and any(made.place != STEP for made in program.products.values()):
        yield Fault("E223", "no layer runs", None)


def _rings(program: p.Program, table: list[tuple[int, Parts]]) -> Iterator[Fault]:
    for ring in program.rings:
        used = ring_track(program, ring)
        wrong = list(tape_faults(program, ring, used))
        yield from wrong
        if not wrong:
            total = sum(len(program.products[name].tiling.transfers) for name, _ in program.transfers(ring))
            yield from _found(check(ring_machine(program, ring, None), used, table, ring_machine(program, ring, total)))


def _copies(program: p.Program, table: list[tuple[int, Parts]], touched: Touched) -> Iterator[Fault]:
    for buffer in dict.fromkeys(copy.buffer for copy in program.copies.values()):
        own = {copy.name for copy in program.copies.values() if copy.buffer == buffer}

        def uses(op: p.Op, place: str, buffer: str = buffer, own: set[str] = own) -> bool:
            if isinstance(op, p.Load | p.Loaded | p.Save | p.Saved):
                return op.copy in own
            found = touched[id(op), place]
            return buffer in found.reads or buffer in found.updates or buffer in found.writes

        yield from _found(check(copies_machine(program, buffer, touched), track(program, uses), table))


def _exchanges(program: p.Program, table: list[tuple[int, Parts]]) -> Iterator[Fault]:
    def meets(op: p.Op, _: str) -> bool:
        return isinstance(op, p.Barrier) or set_of(program, op) is not None

    yield from _found(check(barrier_machine(program), track(program, meets), table))
    for key in dict.fromkeys(map(exchange_set, program.exchanges.values())):

        def own(op: p.Op, _: str, key: str = key) -> bool:
            return set_of(program, op) == key

        yield from _found(check(exchange_machine(program), track(program, own), table))


def _of_list(name: str, op: p.Op, _: str) -> bool:
    """Whether an op goes through tiles of a cache, or chosen experts, one by one."""
    match op:
        case p.StartTiles() | p.Attend():
            return op.ring == name
        case p.Route() | p.Fetch() | p.Experts():
            return op.bank == name
    return False


def _found(fault: Fault | None) -> tuple[Fault, ...]:
    return () if fault is None else (fault,)
