"""No op reaches beyond what there is: each touches what the spec says, in shapes, places and types that exist."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .. import ir as p
from ..ir.spec import accesses
from ..ir.spec_access import Access, Extent, How, Where, Wrong
from ..ir.spec_resources import claims
from ..ir.walk import Path, Placed
from .paths import Fault

CODE = "E228"


class Touches(NamedTuple):
    """The buffers that an op reads, writes, or reads and writes in place; transfers are apart."""

    accesses: tuple[Access, ...]
    reads: tuple[p.BufferRef, ...]
    writes: tuple[p.BufferRef, ...]
    updates: tuple[p.BufferRef, ...]


# Of all ops of a Program, by their paths.
type Touched = dict[Path, Touches]


def thing_faults(program: p.Program) -> Iterator[Fault]:
    """What is another thing than the definition and the schedule make of it."""
    try:
        for claim in claims(program):
            said = f"`{claim.name}` is refused {claim.what}" if claim.wanted is True else ""
            said = said or f"`{claim.name}`: {claim.what} is {_said(claim.found)}, and must be {_said(claim.wanted)}"
            yield Fault(CODE, said, None, claim.name)
    except Wrong as wrong:
        yield Fault(CODE, str(wrong), None)


def _said(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)


def touched_by(program: p.Program, ops: tuple[Placed, ...]) -> tuple[Touched, list[Fault]]:
    """What all ops touch; and those of which the spec knows nothing, or cannot say what."""
    found: Touched = {}
    wrong: list[Fault] = []
    for at in ops:
        try:
            found[at.path] = _touches(accesses(at.op, at.place, program))
        except Wrong as each:
            wrong.append(_at(Fault(CODE, str(each), at.op), at.place))
        except (LookupError, ValueError) as each:
            said = f"{type(at.op).__name__} names what is not there: {each}"
            wrong.append(_at(Fault(CODE, said, at.op), at.place))
    return found, wrong


def _touches(found: tuple[Access, ...]) -> Touches:
    reads: list[p.BufferRef] = []
    writes: list[p.BufferRef] = []
    updates: list[p.BufferRef] = []
    for how, where, name, *_ in found:
        if where is Where.BUFFER and isinstance(name, p.BufferRef):
            if how is How.READ:
                reads.append(name)
            elif how is How.WRITE:
                writes.append(name)
            elif how is How.UPDATE:
                updates.append(name)
    return Touches(found, *(tuple(dict.fromkeys(names)) for names in (reads, writes, updates)))


def reach_faults(program: p.Program, ops: tuple[Placed, ...], touched: Touched) -> Iterator[Fault]:
    """Each op's first place that is not there, or is shorter, or of another type."""
    for at in ops:
        for access in touched[at.path].accesses:
            said = _beyond(program, access) or _elsewhere(program, access, at)
            if said is not None:
                yield _at(Fault(CODE, said, at.op, access.name), at.place)
                break


def _at(fault: Fault, place: str) -> Fault:
    fault.place = place
    return fault


def _beyond(program: p.Program, access: Access) -> str | None:
    there = _there(program, access)
    if there is None:
        return f"there is no {access.where.value} `{access.name}`"
    shape, dtype = there
    what = f"`{access.name}` is {dtype} {list(shape)}"
    if access.dtype is not None and access.dtype != dtype:
        return f"{what}; the op {access.how.value} {access.dtype}"
    if access.shape is None or (len(access.shape) == len(shape) and all(map(_inside, access.shape, shape))):
        return None
    return f"{what}; the op {access.how.value} [{', '.join(map(_words, access.shape))}]"


def _elsewhere(program: p.Program, access: Access, at: Placed) -> str | None:
    """What a part or the step has for itself is nobody else's; a loop over rows begins what goes from row to row."""
    place, inside = at.place, at.op.place if isinstance(at.op, p.RowLoop) else at.place
    if access.where is not Where.BUFFER or not isinstance(access.name, p.BufferRef):
        return None
    held = program.buffers.get(access.name)
    if held is None or held.place in ("", place, inside, program.home(place)):
        return None
    return f"`{access.name}` is of `{held.place}`; `{place}` {access.how.value} it"


def _there(program: p.Program, access: Access) -> tuple[tuple[int, ...], str] | None:
    found: p.Buffer | p.Array | None = None
    match access.where, access.name:
        case Where.BUFFER, p.BufferRef() as ref:
            found = program.buffers.get(ref)
        case Where.RING, p.RingRef() as ref if ref in program.rings:
            return (program.rings[ref].slots, program.rings[ref].rows), "int32"
        case Where.ARRAY, p.ArrayRef() as ref:
            found = program.arrays.get(ref)
        case Where.OUTPUT, p.ArrayRef() as ref:
            found = program.outputs.get(ref)
    return None if found is None else (found.shape, found.dtype)


def _inside(extent: Extent, length: int) -> bool:
    if isinstance(extent, range):
        return 0 <= extent.start <= extent.stop <= length
    return extent == length


def _words(extent: Extent) -> str:
    return f"{extent.start} .. {extent.stop}" if isinstance(extent, range) else str(extent)
