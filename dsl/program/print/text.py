"""A Program in words: what it holds, what it reads, and what happens, within 120 columns."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from ...schedule.blocks import BLOCK
from .. import ir as p
from ..analysis.memory import Line, bill
from ..analysis.traffic import Moved, own_bytes, reads, tapes, writes
from ..ir.scratch import ring_bytes
from ..layout.tiling import ROW_BYTES, Run
from .json import collectives, numerics
from .ops import happens

WIDTH = 120
_NAME = 40  # of what is no buffer, at most


def words(program: p.Program) -> str:
    """The whole text, which ends without a newline; bytes are those of one core."""
    lines = [_title(program)]
    sections: dict[str, list[str]] = {
        "numerics: choices among evaluations that are equal in exact arithmetic": _numerics(program),
        "read from HBM in a step, bytes": _moved(program, reads(program)),
        "written to HBM in a step, bytes": _moved(program, writes(program)),
        "buffers in VMEM, bytes as padded": _buffers(program),
        "rings in VMEM, and the tapes in HBM that pass through them": _rings(program),
        "products": _products(program),
        "collectives": _collectives(program),
        "copies: an array in HBM, an entry for each layer, and its buffer": _copies(program),
        "caches: tiles of positions": _caches(program),
    }
    for phase in program.phases:
        sections[f"what happens in {phase.name}, with the lines of the text"] = happens(phase.body, WIDTH - 2)
    for title, found in sections.items():
        if found:
            lines += ["", title, *(f"  {line}".rstrip() for line in found)]
    return "\n".join(lines)


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Cells in columns, two spaces apart; those of the columns in `right` end together."""
    if not rows:
        return []
    wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(w) if i in right else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, wide, strict=True))
        ).rstrip()
        for row in rows
    ]


def _title(program: p.Program) -> str:
    schedule = program.schedule
    mesh = ", ".join(f"{axis} = {length}" for axis, length in schedule.mesh)
    cores = f"one of {schedule.cores} cores ({mesh})" if schedule.cores > 1 else "one core"
    shape = "x".join(map(str, schedule.topology))
    head = f"program `{schedule.name}` of `{schedule.model.name}`"
    return f"{head}: {program.of.words}, {schedule.target.name} {shape}, {cores}, context {schedule.context}"


def _numerics(program: p.Program) -> list[str]:
    found = []
    for kind, text in numerics(program):
        first, *rest = wrap(text, WIDTH - 12)
        found += [f"{kind:6}  {first}", *(f"{'':8}{line}" for line in rest)]
    return found


def _moved(program: p.Program, lines: tuple[Moved, ...]) -> list[str]:
    total = sum(line.bytes for line in lines)
    rate = program.schedule.target.memory.hbm_rate.value
    rows = [(x.name, number(x.bytes), f"{100 * x.bytes / total:.2f} %") for x in lines]
    least = f"{total / rate * 1e3:.3f} ms at {rate / 1e12:.3g} TB/s, predicted"
    return [*table([*rows, ("total", number(total), least)], right=(1,))]


def _buffers(program: p.Program) -> list[str]:
    """The bill's lines by place: buffers in the Program's order, then what else is there."""
    found, by_place = bill(program), dict[str, list[Line]]({"": []})
    lines = {line.of or line.name: line for line in found.lines}
    for line in (*(lines.pop((ref,)) for ref in program.buffers if (ref,) in lines), *lines.values()):
        by_place.setdefault(line.place, []).append(line)
    rows: list[tuple[str, ...]] = []
    for place, held in by_place.items():
        title = f"while {place} runs" if place else "all the time"
        rows.append((title, "", "", number(sum(line.bytes for line in held))))
        rows += [_held(line, program) for line in held]
    ends = (("total", found.total), ("a core has", found.limit))
    return table([*rows, *((title, "", "", number(size)) for title, size in ends)], right=(3,))


def _held(line: Line, program: p.Program) -> tuple[str, ...]:
    buffer = next((program.buffers[ref] for ref in line.of if isinstance(ref, p.BufferRef)), None)
    if buffer is not None:
        return (f"  {line.name}", _shape(buffer.shape), buffer.dtype, number(line.bytes))
    name = line.name if len(line.name) <= _NAME else f"{line.name[: _NAME - 2]} …"
    return (f"  {name}", "", "", number(line.bytes))


def _rings(program: p.Program) -> list[str]:
    found = []
    for ring in program.rings.values():
        tape = tapes(program)[ring.name]
        how = "filled before the first use and kept full" if ring.ahead else "each transfer sets out at its use"
        found.append(
            f"{ring.name}: {ring.slots} slot{'s' * (ring.slots > 1)} x {number(ring.rows * ROW_BYTES)} = "
            f"{number(ring_bytes(ring))} bytes, {how}"
        )
        found.append(
            f"  tape: {number(tape.transfers)} transfers, {number(tape.bytes)} bytes; of them padding "
            f"{number(tape.padding)}, {100 * tape.padding / tape.own:.2f} % above the weights"
        )
        order: dict[str, list[str]] = {}
        for product in program.products.values():
            if product.ring == ring.name:
                order.setdefault(product.place, []).append(product.name.short)
        rows = [(f"  {place}", f"x {program.times(place)}", ", ".join(names)) for place, names in order.items()]
        found += table(rows, right=(1,))
    return found


def _products(program: p.Program) -> list[str]:
    rows = []
    for product in program.products.values():
        tiling = product.tiling
        size = tiling.rows * ROW_BYTES
        inputs = program.shares.weight_shape(program.instance.model.weights[product.weights[0]])[-1]
        shape = f"{product.dtype}[{'+'.join(map(str, product.widths))}, {inputs}]"
        padding = size - own_bytes(program, product)
        rows.append((product.name.label, shape, product.ring.label, number(size), number(padding)))
        rows += [(f"  {_run(run)}", "", "", "", "") for run in tiling.runs]
    head = ("name, and how it is cut", "weights of a core", "ring", "tape bytes", "padding")
    # how a product is cut may run on below the other columns
    found = table([head, *(row for row in rows if row[1])], right=(3, 4))
    lines = iter(found[1:])
    return [found[0], *(next(lines) if row[1] else row[0] for row in rows)]


def _run(run: Run) -> str:
    many = f" x {run.columns}" if run.blocks > 1 else ""
    columns = f"{run.blocks if many else run.columns}{many} columns"
    fold = f", inputs folded {run.fold} times" if run.fold > 1 else ""
    sizes = " + ".join(f"{rows * ROW_BYTES // 1024:,}" for rows in run.rows)
    return f"{run.count} x ({columns}{fold}), transfers of {sizes} KiB"


def _collectives(program: p.Program) -> list[str]:
    rows = [("name", "kind", "by", "wire", "width", "rounds", "bytes sent", "a step", "in all")]
    total = 0
    for each in collectives(program):
        sent = each["sent_bytes"] * each["runs"]
        total += sent
        rows.append(
            (
                each["name"],
                each["kind"],
                each["by"],
                each["wire"],
                str(each["width"]),
                str(each["rounds"]),
                number(each["sent_bytes"]),
                f"x {each['runs']}",
                number(sent),
            )
        )
    rounds = sum(each["rounds"] * each["runs"] for each in collectives(program))
    rows.append(("total", "", "", "", "", number(rounds), "", "", number(total)))
    return table(rows, right=(4, 5, 6, 7, 8)) if program.exchanges else []


def _copies(program: p.Program) -> list[str]:
    rows = [("name", "part", "slots", "entry", "in", "out")]
    for copy in program.copies.values():
        array = program.arrays.get(copy.name) or program.outputs[copy.name]
        entry = f"{_shape(array.shape[1:])} {array.dtype}"
        rows.append(
            (
                copy.name.label,
                copy.part or "the model",
                str(copy.slots),
                entry,
                _yes(copy.name in program.arrays),
                _yes(copy.name in program.outputs),
            )
        )
    return table(rows, right=(2,)) if program.copies else []


def _caches(program: p.Program) -> list[str]:
    return table(
        [
            (
                ring.name.label,
                ", ".join(map(str, ring.caches)),
                f"{ring.slots} slots x {ring.tile} positions",
                _shared_out(ring),
            )
            for ring in program.caches.values()
        ]
    )


def _shared_out(ring: p.CacheRing) -> str:
    if not ring.axes:
        return ""
    return f"blocks of {BLOCK} in turn over {', '.join(ring.axes)}: {number(ring.positions)} positions a core"


def _yes(value: bool) -> str:
    return "yes" if value else ""


def _shape(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def number(value: int) -> str:
    """`31,457,280`."""
    return f"{value:,}"
