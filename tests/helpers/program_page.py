"""The parts of docs/program.md that the executable spec says: what each op touches, what each resource must be.

Rules of the spec are functions of a Program, so they are asked about all ops of some: which of its names an op reads or
writes is told by the field of the op, or of what the op is given, that holds the name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import attrs
from helpers.definitions import changed

from mks.dsl.collectives.kinds import table as kinds
from mks.dsl.program import ir as p
from mks.dsl.program.ir import lowered_ops
from mks.dsl.program.ir.spec import accesses
from mks.dsl.program.ir.spec_access import Access, Extent, How, Where
from mks.dsl.program.ir.spec_arrays import ARRAYS
from mks.dsl.program.ir.spec_resources import RESOURCES
from mks.dsl.program.ir.walk import Placed, walk
from mks.dsl.program.lower.lower import lower

# A shipped definition, the rows, and whether they are consecutive.
SAMPLES = (("kimi_k3", 4, False), ("qwen38", 4, True), ("qwen3", 4, False), ("dspark", 1, False))

# The table of a Program in which the name of a field of an op is looked up.
TABLES: dict[str, tuple[str, ...]] = {
    "product": ("products",),
    "copy": ("copies",),
    "ring": ("rings", "caches"),
    "bank": ("banks",),
    "exchange": ("exchanges",),
    "logits": ("views",),
}
# Fields that name places of a kind, before those of the op itself.
FIELDS = {
    Where.BUFFER: ("operand", "buffer", "buffers", "routes", "value", "beside", "pieces", "result"),
    Where.RING: (),
    Where.ARRAY: ("array", "caches"),
    Where.OUTPUT: (),
}
# What an op reads by its expression, or by the expressions of the op that it is about.
EXPRESSION = {How.READ: "what its expression names", How.UPDATE: "states that its expression updates"}
# The class of each table of resources that has one.
CLASSES = {
    "views": p.View,
    "rings": p.Ring,
    "products": p.Product,
    "copies": p.Copy,
    "caches": p.CacheRing,
    "banks": p.ExpertPool,
    "exchanges": p.Collective,
    "turns": p.RopeTables,
    "arrays": p.Array,
}


@cache
def samples() -> tuple[p.Program, ...]:
    """Shipped definitions that hold every op, each in its first schedule."""
    found = []
    for name, rows, consecutive in SAMPLES:
        definition = changed(name)
        key = definition.own_schedules[0]
        schedule = definition.schedules[key]
        assert schedule is not None
        found.append(lower(schedule, definition.instances[key[0]], rows, consecutive=consecutive))
    return tuple(found)


def generated() -> dict[str, str]:
    """Each part of the page by its name: `op Dot`, `resource Ring`, `arrays`, `lowered ops`."""
    found = {f"op {cls.__name__}": _op(cls) for cls in p.Op.__value__.__args__}
    found |= {f"resource {cls.__name__}": _resource(table) for table, cls in CLASSES.items()}
    found["arrays"] = ", ".join(f"`{kind}`" for kind in sorted(ARRAYS))
    rows = (f"| `{_call(row)}` | {row.summary} |" for row in lowered_ops.table.values())
    found["lowered ops"] = "\n".join(["| op | what it makes |", "|---|---|", *rows])
    rows = (
        f"| `{x.name}` | {(type(x).__doc__ or '').splitlines()[0]} | {', '.join(x.wires)} |" for x in kinds.values()
    )
    found["collective kinds"] = "\n".join(["| kind | what it does | travels as |", "|---|---|---|", *rows])
    return found


def _call(row: lowered_ops.LoweredOp) -> str:
    return f"{row.name}({', '.join((*row.parameters, *(['…'] if row.repeats else []), *row.scalars))})"


def _op(cls: type) -> str:
    """The op's fields, and a line for each place that it touches, with an example."""
    fields = ", ".join(f"`{field.name}`" for field in attrs.fields(cls)) or "none"
    lines: dict[tuple[str, str], str] = {}
    for program in samples():
        for at in walk(program):
            if isinstance(at.op, cls):
                for access in accesses(at.op, at.place, program):
                    of = f"{access.where.value}: {_role(at, access, program)}"
                    lines.setdefault((access.how.value, of), _example(access, program))
    order = {how.value: i for i, how in enumerate(How)}
    rows = sorted(lines.items(), key=lambda line: (order[line[0][0]], line[0][1]))
    said = [f"Fields: {fields}.", ""]
    if not rows:
        return "\n".join([*said, "Touches no memory itself."])
    found = (f"| {how} | {of} | {example} |" for (how, of), example in rows)
    return "\n".join([*said, "| the op | which | for example |", "|---|---|---|", *found])


def _role(at: Placed, access: Access, program: p.Program) -> str:
    """By which field an op knows what it touches."""
    if access.how in EXPRESSION and hasattr(at.op, "node"):
        return EXPRESSION[access.how]
    for field, names in _fields(at.op, access.where, program):
        if access.name in names:
            return f"`{field}`"
    assert access.how in EXPRESSION, (at.op, access)
    return EXPRESSION[access.how]


def _fields(op: Any, where: Where, program: p.Program) -> Iterator[tuple[str, tuple[Any, ...]]]:
    own = {field.name: getattr(op, field.name) for field in attrs.fields(type(op))}
    if where is Where.OUTPUT:
        own.pop("buffer", None)
    yield from ((name, _names(value)) for name, value in own.items() if name in FIELDS[where])
    given: list[tuple[str, tuple[Any, ...]]] = []
    for name, value in own.items():
        if isinstance(value, int):
            continue
        held = next((t[value] for table in TABLES.get(name, ()) if value in (t := getattr(program, table))), None)
        given += [(f"{name}.{x}", _names(getattr(held, x))) for x in FIELDS[where] if hasattr(held, x)]
    yield from (each for each in given if not each[0].endswith(".routes"))
    yield from ((name, _names(value)) for name, value in own.items())
    yield from given


def _names(value: Any) -> tuple[Any, ...]:
    """The names that a field holds: one, several, or those of pieces."""
    if isinstance(value, tuple):
        return tuple(name for each in value for name in _names(each))
    return (value.result if isinstance(value, p.Piece) else value,)


def _example(access: Access, program: p.Program) -> str:
    held: Any = {
        Where.BUFFER: program.buffers,
        Where.ARRAY: program.arrays,
        Where.OUTPUT: program.outputs,
        Where.RING: {},
    }[access.where].get(access.name)
    shape = access.shape if access.shape is not None else (held.shape if held is not None else None)
    dtype = access.dtype or (held.dtype if held is not None else "words")
    return f"`{access.name}`: " + (f"{dtype} [{', '.join(map(_extent, shape))}]" if shape is not None else "all")


def _extent(extent: Extent) -> str:
    return f"{extent.start} .. {extent.stop}" if isinstance(extent, range) else str(extent)


def _general(what: str) -> str:
    """What a claim is about, without the numbers and names of the resource."""
    what = re.sub(rf"\b({'|'.join(kinds)})\b", "its kind", re.sub(r"\d+", "n", what))
    return re.sub(r"`[^`]*`", "its part", what)


def _resource(table: str) -> str:
    """The fields of a resource, and what the spec claims of one."""
    said: dict[str, None] = {}
    for program in samples():
        for name, thing in getattr(program, table).items():
            given = (name, thing) if table in ("views", "turns") else thing
            said |= dict.fromkeys(_general(claim.what) for claim in RESOURCES[table](given, program))
    fields = ", ".join(f"`{field.name}`" for field in attrs.fields(CLASSES[table]) if field.name != "span")
    return f"Fields: {fields}.\n\nThe spec derives and compares: {'; '.join(said)}."
