"""Programs with one thing changed: waits gone or elsewhere, starts exchanged, slots, bytes, barriers, buffers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise

from attrs import evolve
from helpers.rewrite import replaced, rewritten, with_body

from mks.dsl.program import ir as p
from mks.dsl.program.ir.walk import Path, children, walk

type Mutant = tuple[str, p.Program]

_WAITS = (p.Wait, p.CopyWait, p.StoreWait, p.Receive)
_STARTS = (p.Start, p.CopyStart, p.StoreStart, p.Send, p.StartTiles, p.Fetch)
_MOVES = (*_WAITS, *_STARTS, p.Barrier, p.Route, p.Attend, p.AttendBlock, p.Experts, p.Keep, p.RowLoop)


def mutants(program: p.Program) -> Iterator[Mutant]:
    """All of them, each with a few words."""
    for path, op in placed(program):
        if isinstance(op, _MOVES):
            yield f"without {_said(op, path)}", replaced(program, path, ())
            if not isinstance(op, p.Route):
                yield f"twice {_said(op, path)}", replaced(program, path, (op, op))
        yield from ((f"{words} {_said(op, path)}", replaced(program, path, (other,))) for words, other in _changed(op))
    yield from _moved(program)
    yield from _swapped(program)
    yield from _depths(program)
    yield from _shared(program)
    yield from _lengths(program)


def placed(program: p.Program) -> Iterator[tuple[Path, p.Op]]:
    """Every op with its path, but for switches, and for what is done with an expert."""
    apart = {inner.path for at in walk(program) if isinstance(at.op, p.Experts) for inner in at.inside}
    for at in walk(program):
        if at.path not in apart and not isinstance(at.op, p.LayerSwitch):
            yield at.path, at.op


def _said(op: p.Op, path: Path) -> str:
    what = next(
        (getattr(op, name) for name in ("ring", "copy", "exchange", "product", "bank") if hasattr(op, name)), ""
    )
    return f"{type(op).__name__} {what} at {'.'.join(map(str, path))}"


def _changed(op: p.Op) -> Iterator[tuple[str, p.Op]]:
    """The op with one number changed."""
    match op:
        case p.Start():
            yield "one more in", evolve(op, count=op.count + 1)
            if op.count > 1:
                yield "one less in", evolve(op, count=op.count - 1)
        case p.Wait():
            yield "fewer bytes in", evolve(op, rows=(op.rows[0] - 8, *op.rows[1:]))
            yield "more bytes in", evolve(op, rows=(*op.rows[:-1], op.rows[-1] + 8))
            yield "one more in", evolve(op, rows=(*op.rows, op.rows[-1]))
            if len(op.rows) > 1:
                yield "one less in", evolve(op, rows=op.rows[:-1])
        case p.CopyStart() | p.StoreWait():
            yield "another layer in", evolve(op, ahead=not op.ahead)
        case p.Repeat():
            yield "one more in", evolve(op, count=op.count + 1)
            yield "one less in", evolve(op, count=op.count - 1)
        case p.LayerLoop():
            yield "one layer less in", evolve(op, stop=op.stop - 1)
        case p.RowLoop():
            yield "one row less in", evolve(op, stop=op.stop - 1)
            yield "one row more in", evolve(op, stop=op.stop + 1)
            yield "nothing carried in", evolve(op, carried=())
        case p.AttendBlock():
            yield "keys for values in", evolve(op, earlier=op.earlier[::-1])
            yield "own keys for values in", evolve(op, entries=op.entries[::-1])
    if isinstance(op, p.StoreWait) and op.all_:
        yield "only one slot in", evolve(op, all_=False)


def bodies(program: p.Program) -> Iterator[tuple[Path, tuple[p.Op, ...]]]:
    """Every list of ops, with the way to it."""
    yield from (((i,), phase.body) for i, phase in enumerate(program.phases))
    for at in walk(program):
        if isinstance(at.op, p.Repeat | p.RowLoop | p.LayerSwitch):
            yield from (((*at.path, *body.path), body.ops) for body in children(at.op))


def ordered(program: p.Program, path: Path, body: tuple[p.Op, ...]) -> p.Program:
    """With another body of as many ops in the place of one."""
    if len(path) == 1:
        return with_body(program, body, path[0])
    for i, op in enumerate(body):
        program = replaced(program, (*path, i), (op,))
    return program


def _moved(program: p.Program) -> Iterator[Mutant]:
    """One op earlier or later, or to an end of its body."""
    for path, body in bodies(program):
        for at, op in enumerate(body):
            if isinstance(op, _MOVES):
                for to in dict.fromkeys((at - 1, at + 1, 0, len(body) - 1)):
                    if 0 <= to < len(body) and to != at:
                        rest = [*body[:at], *body[at + 1 :]]
                        moved = (*rest[:to], op, *rest[to:])
                        yield f"to {to} {_said(op, (*path, at))}", ordered(program, path, moved)


def _swapped(program: p.Program) -> Iterator[Mutant]:
    """Two starts, two waits, or the ends of a collective, exchanged in their body."""
    for path, body in bodies(program):
        for kinds in (_STARTS, _WAITS, (p.Send, p.Receive), (p.Dot,)):
            own = [i for i, op in enumerate(body) if isinstance(op, kinds)]
            for a, b in pairwise(own):
                ops = list(body)
                ops[a], ops[b] = body[b], body[a]
                yield (
                    f"{_said(body[a], (*path, a))} exchanged with {_said(body[b], (*path, b))}",
                    ordered(program, path, tuple(ops)),
                )


def _depths(program: p.Program) -> Iterator[Mutant]:
    """A slot less or more, with the room for it and without."""
    for step in (-1, 1):
        for name, ring in program.rings.items():
            if ring.slots + step:
                yield (
                    f"{step:+} slot in {name}",
                    evolve(program, rings=program.rings | {name: evolve(ring, slots=ring.slots + step)}),
                )
        for name, copy in program.copies.items():
            if copy.slots + step:
                made = program.copies | {name: evolve(copy, slots=copy.slots + step)}
                yield f"{step:+} slot in {name}", evolve(program, copies=made)
                yield (
                    f"{step:+} slot and room in {name}",
                    evolve(program, copies=made, buffers=_room(program, (copy.buffer,), copy.slots + step)),
                )
        for name, cache in program.caches.items():
            if cache.slots + step:
                changed = program.caches | {name: evolve(cache, slots=cache.slots + step)}
                yield f"{step:+} slot in {name}", evolve(program, caches=changed)
                yield (
                    f"{step:+} slot and room in {name}",
                    evolve(program, caches=changed, buffers=_room(program, cache.buffers, cache.slots + step)),
                )


def _room(program: p.Program, names: tuple[p.BufferRef, ...], slots: int) -> dict[p.BufferRef, p.Buffer]:
    held = program.buffers
    return held | {name: evolve(held[name], shape=(slots, *held[name].shape[1:])) for name in names}


def _shared(program: p.Program) -> Iterator[Mutant]:
    """Two buffers of one shape that are one."""
    moved = {c.buffer for c in program.copies.values()} | {b for c in program.caches.values() for b in c.buffers}
    apart = set(program.banks) | {op.buffer for _, op in placed(program) if isinstance(op, p.Put)}
    for a, b in combinations(program.buffers.values(), 2):
        if {a.name, b.name} & apart:
            continue
        if (a.shape, a.dtype) == (b.shape, b.dtype) and (a.name in moved) == (b.name in moved):
            if a.name in moved:
                yield f"{b.name} in {a.name}", _moves_into(program, b.name, a.name)
            elif a.place == b.place or not a.place:
                yield f"{b.name} in {a.name}", _renamed(program, b.name, a.name)


def _moves_into(program: p.Program, old: p.BufferRef, new: p.BufferRef) -> p.Program:
    """What moves goes to another buffer; readers look where they did."""
    copies = {name: evolve(c, buffer=new) if c.buffer == old else c for name, c in program.copies.items()}
    caches = {
        name: evolve(c, buffers=tuple(new if b == old else b for b in c.buffers)) for name, c in program.caches.items()
    }
    return evolve(program, copies=copies, caches=caches)


def _renamed(program: p.Program, old: p.BufferRef, new: p.BufferRef) -> p.Program:
    """A program whose values share a buffer."""

    def name(each: p.BufferRef | None) -> p.BufferRef | None:
        return new if each == old else each

    def op_(op: p.Op) -> p.Op:
        match op:
            case p.Compute():
                return evolve(op, outputs=tuple(map(name, op.outputs)))
            case p.Lookup() | p.Emit():
                return evolve(op, buffer=name(op.buffer))
            case p.Attend():
                return evolve(
                    op,
                    queries=tuple(map(name, op.queries)),
                    entries=tuple(map(name, op.entries)),
                    result=name(op.result),
                )
            case p.RopeTables():
                return evolve(op, cos=name(op.cos), sin=name(op.sin))
            case p.Put():
                return evolve(op, buffer=name(op.buffer))
            case p.Route():
                return evolve(op, scores=name(op.scores), weights=name(op.weights))
            case p.ExpertDot():
                return evolve(op, operand=name(op.operand), result=name(op.result))
            case p.Experts():
                return evolve(op, value=name(op.value), result=name(op.result))
        return op

    return evolve(
        rewritten(program, lambda op: (op_(op),)),
        views={n: evolve(v, buffer=name(v.buffer)) for n, v in program.views.items()},
        products={n: evolve(q, operand=name(q.operand), result=name(q.result)) for n, q in program.products.items()},
        exchanges={
            n: evolve(
                e,
                value=name(e.value),
                result=name(e.result),
                beside=name(e.beside),
                pieces=tuple(evolve(piece, result=name(piece.result)) for piece in e.pieces),
            )
            for n, e in program.exchanges.items()
        },
        banks={n: evolve(b, routes=name(b.routes)) for n, b in program.banks.items()},
        turns={n: op_(turn) for n, turn in program.turns.items()},
    )


def _lengths(program: p.Program) -> Iterator[Mutant]:
    """Products on another ring, and rings with too little room."""
    for name, ring in program.rings.items():
        yield (
            f"smaller slots in {name}",
            evolve(program, rings=program.rings | {name: evolve(ring, rows=ring.rows - 8)}),
        )
    for product in program.products.values():
        for ring in program.rings:
            if ring != product.ring:
                yield (
                    f"{product.name} on {ring}",
                    evolve(program, products=program.products | {product.name: evolve(product, ring=ring)}),
                )
